// Dry run: forward and backward of a model's parts over the shapes of one micro-batch. Kernels and messages are counted
// and not run. It costs little more than its allocations, and its counts are equal on all machines.
#pragma once
#include <vector>

#include "framework/ops/ops.h"
#include "framework/tensor/launch.h"
#include "kernels/core/skip_copies.h"
#include "parallel/comm/cluster.h"
#include "parallel/comm/world/traffic.h"
#include "parallel/model/chain.h"

namespace trireme {

/// While it lives, this thread does not write or copy large tensors, for models whose values are not used. Throws Error
/// if the thread has a LaunchWatch.
class SkipValues {
 public:
  SkipValues();

 private:
  SkipCopies copies_;
  LaunchWatch writes_;
};

/// Multiplications and additions of a kernel call: for products, convolutions and attention; 0 for other kernels.
double operations_of(const LaunchWatch::Call&);

/// Whether a dry run runs the kernel all the same: kernels with small operands whose results the host reads, such as
/// the counts that batch norm merges, and copies of ids.
bool runs_dry(const LaunchWatch::Call&);

struct DryRunOptions {
  /// Meter of the mesh over which the model's layers, and the StepContext's norm, communicate; null: they do not.
  const TrafficMeter* meter = nullptr;
  Loss loss = {};  ///< of the last part's output; null: no loss
  /// For the loss; only host code of a loss sees the values. Undefined: the loss is left out, but for a cross-entropy
  /// of predictions that stay divided, of which all labels are 0.
  Tensor labels = {};
  /// The plan whose programs run the parts (by name). Over a cut between two programs, gradients are always sent back.
  /// Null: there are no cuts.
  const Plan* plan = nullptr;
  DeviceRates rates = {};  ///< for the seconds of PartCost
  /// Whether to count the memory of passes (parallel/model/part_memory.h). False: only saved, halo and output, of each
  /// part alone.
  bool memory = false;
};
/// Result of a dry run.
struct DryRun {
  /// The given parts with costs, comms, outputs and read_as; other members are unchanged. A kernel takes the
  /// longer of its operations and its bytes. Forward and each half of backward take at least a nanosecond.
  std::vector<PartInfo> parts;
  DType loss = DType::f32;  ///< type of the loss
};

/// Runs a pass of a part (forward, loss, backward_input or backward_weight) and adds to its cost.
using SpendOn = std::function<void(PartInfo&, ActionKind, double& cost, const std::function<void()>& pass)>;
/// Runs forward and backward part by part under the caller's StepContext, and finds costs and outputs. Gradients are
/// not cleared. Returns the type of the loss.
DType run_parts(const Chain&, std::vector<PartInfo>&, Tensor x, const DryRunOptions&, const SpendOn&);

/// Runs under the caller's StepContext; a batch in it must name x's rows. x, [rows, ...]: only shape, type and device
/// matter. Weights and running statistics are unchanged; gradients are cleared at the end. Layers and losses whose host
/// code reads values see undefined values. PartInfo::read_as knows the reads of kernels and of copies, not those of
/// host code. Throws Error if this thread has a LaunchWatch.
DryRun dry_run(const Chain&, Parameters&, std::vector<PartInfo> parts, const Tensor& x, const DryRunOptions& = {});

}  // namespace trireme
