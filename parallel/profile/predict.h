// What a step of a plan was to take on this machine, and what it took.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/world/mesh.h"
#include "parallel/profile/measure.h"

namespace trireme {

/// Where a step's time goes, seconds, mean over ranks. The members but `step` sum up to it.
struct StepTimes {
  double step = 0;
  double forward = 0, backward = 0, loss = 0, update = 0;  ///< of all micro-batches
  double other = 0;                                        ///< what else computes: encoding, memory that is given back
  std::map<std::string, double> waits = {};  ///< by mesh axis: nothing computed because a call along it had not ended
  double host = 0;                           ///< the rest: between actions, and between steps
};
/// Those members by the names that tables give them, in the order of a step: "forward", "backward", "loss", "update",
/// "other computation", "waiting, axis data" for each axis, "between actions".
std::vector<std::pair<std::string, double>> components_of(const StepTimes&);
/// After how many steps the plan's actions are those of a step again, agreements left out: 4 for an average every four
/// steps, at most 2^20. 1: all steps are alike.
std::int64_t period_of(const Plan&);
/// Of one step's timeline, which took `step` seconds: of a measured one on each rank from its own first action. A gap
/// between computations counts for the axis of the call that ends last in it.
StepTimes times_of(const Plan&, const Timeline&, double step);

struct PredictStepOptions {
  Index rows = 1;                                      ///< of a micro-batch, on a rank
  std::vector<MeasuredCall> calls = {};                ///< between ranks
  double fresh = 0;                                    ///< seconds per byte of memory that is given back and comes anew
  double vector_op = 0;                                ///< SimulateOptions::vector_op
  std::function<double(const Action&)> measured = {};  ///< SimulateOptions::measured
  bool second_copies = false;                          ///< SimulateOptions::second_copies
  double jitter = 0;                                   ///< Cluster::jitter: ranks wait for the slower of them
  Index element = 4;                                   ///< bytes of a parameter
  std::int64_t step = 1;                               ///< the first of those that are simulated
  int steps = 1;                                       ///< their mean is the answer
};
/// What the plan's calls take among the ranks of the mesh, measured: collectives and messages by size, encoded
/// reductions, what mixes weights, memory that is given back. step: one of them. PredictStepOptions::rows and
/// element are left to the caller. A collective call.
PredictStepOptions measure_calls_of(Mesh&, const Plan&, std::int64_t step, int runs = 5);
/// measure_model() for the plan's micro-batches of so many rows, and where a step has several, what each program's
/// segments take on the rank that runs them, one micro-batch behind the other. A collective call of the mesh.
ModelProfile measure_parts_of(Mesh&, const Plan&, MeasureOptions, Index rows);
/// The plan's step by simulate(), with the costs of the profile in the place of the parts'; where layers are divided
/// over ranks, their share of them. Ranks are threads or processes of one host: they carry collectives out while they
/// wait. Throws Error where the profile has other parts than the plan.
StepTimes predict_step(const Plan&, const ModelProfile&, const PredictStepOptions&);

}  // namespace trireme
