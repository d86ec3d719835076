// Measurements of a machine, for `trireme bench --machine` and for the prediction at the end of a run.
#pragma once
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "framework/ops/ops.h"
#include "framework/optim/optimizer.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/model/chain.h"
#include "parallel/profile/machine_profile.h"
#include "parallel/runtime/step.h"

namespace trireme {

struct MeasureOptions {
  std::function<Module()> model;  ///< builds a new model for each rank
  Loss loss = {};
  OptimizerConfig optimizer;
  StepOptions step = {};                                       ///< options of the measured steps
  std::function<std::pair<Tensor, Tensor>(Index rows)> batch;  ///< a batch of inputs and labels with that many rows
  std::vector<Index> rows = {};                                ///< rows of micro-batches to measure, ascending
  int runs = 10;                                               ///< repetitions, after two warm-up runs
  SplitOptions split = {};                                     ///< how layers are split, for measure_share()
};

/// Measures steps of the whole model on each rank of the communicator, at the same time and without messages. Returns
/// rank 0's measurements on all ranks. The caller sets ModelProfile::model, arch and optimizer. A collective call.
ModelProfile measure_model(Communicator&, const MeasureOptions&);
/// Whether measure_share() can measure layers that are split like this: not one_weird_trick, where messages decide how
/// many rows a kernel gets.
bool can_measure_share(const SplitOptions&);
/// As measure_model(), of a rank's share of layers that are split over the mesh. Its kernels run with the shapes of
/// that rank and without the messages between them. Of each part the slowest rank's duration counts, because the others
/// wait for it. A collective call. Experts get as many rows of each other rank as of this one.
ModelProfile measure_share(Mesh&, const MeasureOptions&);
/// Measures a program's segments on a rank that runs only these parts, with the program's number of micro-batches in
/// flight, because both affect the caches. The time of a segment is divided among its parts in the proportion of
/// `parts`; other parts are unchanged. split: run the halves of backward separately. x: one micro-batch, input of the
/// model's first part.
void measure_stage(const Chain&, Parameters&, const Tensor& x, const Program&, bool split, int runs,
                   std::vector<PartCost>& parts);
/// Measures collectives and messages of these sizes (f32) between the ranks of the communicator, `runs` times each, on
/// memory that its rank has just written. The time runs from the arrival of the last rank, for which the others wait,
/// to the end of all. Returns the same on all ranks. A collective call.
std::vector<MeasuredCall> measure_calls(Communicator&, std::span<const Index> bytes, int runs = 15);
/// Measures seconds per byte of gathered blocks of other ranks whose memory was returned to the system before, in
/// addition to gathering alone. A collective call.
Measured measure_fresh(Communicator&, int runs = 15);
/// Measures seconds per byte of each elementwise operation that mixes weights (ActionRow::vector_ops), on vectors of
/// `size` f32, on all ranks at the same time. A collective call.
Measured measure_vector_ops(Communicator&, Index size = Index{1} << 20, int runs = 15);
/// Seconds of an encoded reduction of the plan in that step, with encoding and decoding. Returns the same on all ranks.
/// A collective call.
double measure_encoded(Communicator&, const Plan&, const Action&, std::int64_t step, int runs = 9);
/// Seconds of an action of the plan that mixes weights (ActionRow::vector_ops and calls) in that step, from the start
/// of the last rank to the end of all, on separate weights and states. Returns the same on all ranks. A collective
/// call.
double measure_mixing(Communicator&, const Plan&, const Action&, std::int64_t step, int runs = 9);
/// Median and spread of at least one value.
Measured measured(std::vector<double> values);

}  // namespace trireme
