// Predicted and measured durations of a plan's step on this machine.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/world/mesh.h"
#include "parallel/profile/measure.h"

namespace trireme {

/// Components of a step's duration in seconds, mean over ranks. All members except `step` add up to it.
struct StepTimes {
  double step = 0;
  double forward = 0, backward = 0, loss = 0, update = 0;  ///< sums over micro-batches
  double other = 0;                                        ///< other computation: encoding, memory returned to the
                                                           ///< system
  std::map<std::string, double> waits = {};  ///< by mesh axis: time in which nothing was computed because a call along
                                             ///< it had not ended
  double host = 0;                           ///< the rest: between actions and between steps
};
/// The components by the names in tables, in the order of a step: "forward", "backward", "loss", "update", "other
/// computation", "waiting, axis data" for each axis, "between actions".
std::vector<std::pair<std::string, double>> components_of(const StepTimes&);
/// Period in steps after which the plan's actions repeat, without agreements: 4 for an average every four steps; at
/// most 2^20. 1: all steps are alike.
std::int64_t period_of(const Plan&);
/// Components of one step from its timeline. step: its duration in seconds. A measured timeline counts from each rank's
/// first action. A gap between computations counts for the axis of the call that ends last in it.
StepTimes times_of(const Plan&, const Timeline&, double step);

struct PredictStepOptions {
  Index rows = 1;                                      ///< rows of a micro-batch on a rank
  std::vector<MeasuredCall> calls = {};                ///< between ranks
  double fresh = 0;                                    ///< seconds per byte of memory that is returned to the system
                                                       ///< and allocated again
  double vector_op = 0;                                ///< SimulateOptions::vector_op
  std::function<double(const Action&)> measured = {};  ///< SimulateOptions::measured
  bool second_copies = false;                          ///< SimulateOptions::second_copies
  double jitter = 0;                                   ///< Cluster::jitter: ranks wait for the slowest
  Index element = 4;                                   ///< bytes per parameter
  std::int64_t step = 1;                               ///< first simulated step
  int steps = 1;                                       ///< number of simulated steps; the result is their mean
};
/// Measures the plan's calls between the ranks of the mesh: collectives and messages by size, encoded reductions,
/// mixing of weights, memory returned to the system. step: one that has all of them. The caller sets
/// PredictStepOptions::rows and element. A collective call.
PredictStepOptions measure_calls_of(Mesh&, const Plan&, std::int64_t step, int runs = 5);
/// measure_model() for micro-batches of `rows` rows. If a step has several micro-batches, also measures each program's
/// segments on a rank that runs it, micro-batch after micro-batch. Of split layers (MeasureOptions::split) it measures
/// a rank's share instead, if it can. A collective call of the mesh.
ModelProfile measure_parts_of(Mesh&, const Plan&, MeasureOptions, Index rows);
/// Predicts the plan's step with simulate() and the profile's costs instead of the parts' costs. If the profile is of
/// the whole model, divided layers cost its time over the number of ranks. Ranks are threads or processes of one host,
/// which carry out collectives while they wait. Throws Error if the profile has other parts than the plan.
StepTimes predict_step(const Plan&, const ModelProfile&, const PredictStepOptions&);

}  // namespace trireme
