// imagine(): memory and messages of a model's parts on the ranks of an imagined mesh, by dry runs of single ranks. Also
// the plan's traffic as a table.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/ops/ops.h"
#include "parallel/model/planned_traffic.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// Input of imagine(), in addition to the plan.
struct ImagineOptions {
  std::function<Module()> model;  ///< builds a new model for each rank, since layers are split in place
  Tensor x = {};                  ///< one rank's rows of a micro-batch, with whole images; only shape, type and device
                                  ///< matter
  Loss loss = {};                 ///< null: none
  bool keeps_outputs = false;     ///< whether StepOptions::keep_outputs is given: no predictions stay divided
  Tensor labels = {};             ///< for the loss
};
/// Sets the comms, outputs and bytes of the plan's parts, which must be the parts of the whole model. They are taken
/// from rank 0. If image axes are cut, they are from the rank with most bytes among at most three ranks along each axis
/// (both ends and one between). Messages of split layers before and after the model belong to its first and last part.
/// Returns the type of the loss.
DType imagine(Plan&, const Strategy&, const ImagineOptions&);

/// What payload means: a line below tables of traffic.
inline constexpr const char* payload_in_words =
    "bytes of the tensors in a rank's calls. An all-reduce counts its vector once, a gather the vectors of all ranks. "
    "In a ring of p ranks each sends 2 (p - 1) / p of an all-reduce's payload, and (p - 1) / p of a gather's or "
    "reduce-scatter's";

/// Calls and payload of a step by axis, one line each, for every program, and below it for each phase that runs on call
/// or not in this step (TrafficOptions::step). With `measured`: for every rank, planned and counted.
std::string traffic_table(const Plan&, const TrafficOptions&, const std::vector<StepTraffic>& measured = {});

}  // namespace trireme
