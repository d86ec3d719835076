// Measuring a machine: what trireme profile writes down, and what runs compare themselves with.
#pragma once
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "framework/ops/ops.h"
#include "framework/optim/optimizer.h"
#include "parallel/comm/communicator.h"
#include "parallel/model/chain.h"
#include "parallel/profile/machine_profile.h"
#include "parallel/runtime/step.h"

namespace trireme {

struct MeasureOptions {
  std::function<Module()> model;  ///< makes it anew, for each rank
  Loss loss = {};
  OptimizerConfig optimizer;
  StepOptions step = {};                                       ///< of the steps that are measured
  std::function<std::pair<Tensor, Tensor>(Index rows)> batch;  ///< so many inputs, and what is to come out
  std::vector<Index> rows = {};                                ///< of micro-batches, in ascending order, each measured
  int runs = 10;                                               ///< of each measurement, behind two that prepare
};

/// Steps of the model, whole on each rank of the communicator, which do the same at the same time without a message.
/// What rank 0 measures, on each. ModelProfile::model, arch and optimizer are left to the caller. A collective call.
ModelProfile measure_model(Communicator&, const MeasureOptions&);
/// The costs of a program's segments as a rank takes them that runs these parts and no others, with as many
/// micro-batches in flight: what a rank's caches hold depends on both. Times of a segment are shared out among its
/// parts in the proportion of `parts`, of which those of others are left as they are. split: halves of backward one
/// after the other, else together. x: one micro-batch, of the model's first part.
void measure_stage(const Chain&, Parameters&, const Tensor& x, const Program&, bool split, int runs,
                   std::vector<PartCost>& parts);
/// Collectives and messages of so many bytes (f32) among the ranks of the communicator, each `runs` times on memory
/// that its rank has just written; from the moment when the last, for which the others wait, is there to the end of
/// all. The same on all ranks. A collective call.
std::vector<MeasuredCall> measure_calls(Communicator&, std::span<const Index> bytes, int runs = 15);
/// Seconds per byte of other ranks' blocks whose memory is given back to the system and gathered anew, beside those of
/// the gathering alone. A collective call.
Measured measure_fresh(Communicator&, int runs = 15);
/// Seconds per byte of each of the elementwise operations by which weights are mixed (ActionRow::vector_ops), on
/// vectors of so many f32, all ranks at the same time. A collective call.
Measured measure_vector_ops(Communicator&, Index size = Index{1} << 20, int runs = 15);
/// Seconds of an encoded reduction of the plan in that step, encoding and decoding included. The same on all ranks. A
/// collective call.
double measure_encoded(Communicator&, const Plan&, const Action&, std::int64_t step, int runs = 9);
/// Seconds of an action of the plan by which ranks mix weights (ActionRow::vector_ops and calls) in that step, from the
/// moment when the last of them begins to the end of all, on weights and states of its own. The same on all ranks. A
/// collective call.
double measure_mixing(Communicator&, const Plan&, const Action&, std::int64_t step, int runs = 9);
/// The median, and how the values lie around it. There is at least one.
Measured measured(std::vector<double> values);

}  // namespace trireme
