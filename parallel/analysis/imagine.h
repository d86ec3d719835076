// Imagined ranks: what the parts of a model keep and send on the ranks of a mesh that is not there, by dry runs of
// these ranks one by one; and the plan's traffic as a table.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/ops/ops.h"
#include "parallel/model/planned_traffic.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// What imagine() must know beside the plan.
struct ImagineOptions {
  std::function<Module()> model;  ///< makes it anew: a rank's layers are split in place
  Tensor x = {};                  ///< one rank's rows of a micro-batch, whole images; only shape, type and place count
  Loss loss = {};                 ///< null: none
  Tensor labels = {};             ///< for it
};
/// Sets the comms and outputs of the plan's parts, which are those of the whole model, and of their costs the bytes, on
/// the rank that has most of them where image axes are cut (at most three ranks along each are looked at: both ends and
/// one between), else on rank 0. What split layers send in front of the model and behind it goes to its first and last
/// part. Returns the type of the loss.
DType imagine(Plan&, const Strategy&, const ImagineOptions&);

/// What the bytes of calls count, for who reads them in a table.
inline constexpr const char* payload_in_words =
    "bytes of the tensors that a rank hands to calls: the vector of an all-reduce once, of a gather what all ranks "
    "bring. A ring of p ranks sends 2 (p - 1) / p of an all-reduce's, (p - 1) / p of a gather's or reduce-scatter's";

/// Calls and payload of a step by axis, a line for each: of every program, and below it of each of its phases that the
/// step (TrafficOptions::step) is without, or that run on call; or, if measured, of every rank, planned and counted.
std::string traffic_table(const Plan&, const TrafficOptions&, const std::vector<StepTraffic>& measured = {});

}  // namespace trireme
