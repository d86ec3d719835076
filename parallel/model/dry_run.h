// Dry run: the parts of a model forward and backward over the shapes of one micro-batch. Kernels and messages are
// counted and left out, so it costs no more than its allocations, and counts the same on every machine.
#pragma once
#include <vector>

#include "framework/ops/ops.h"
#include "framework/tensor/launch.h"
#include "kernels/core/skip_copies.h"
#include "parallel/comm/world/traffic.h"
#include "parallel/model/chain.h"

namespace trireme {

/// While it lives, this thread writes and copies no large tensor: for models of which nobody reads the values. Throws
/// Error where the thread has a LaunchWatch.
class SkipValues {
 public:
  SkipValues();

 private:
  SkipCopies copies_;
  LaunchWatch writes_;
};

/// Multiplications and additions of a kernel call: those of products and convolutions; 0 for all others.
double operations_of(const LaunchWatch::Call&);

struct DryRunOptions {
  /// Of the mesh that the model's layers, and the StepContext's norm, communicate over; null: none do.
  const TrafficMeter* meter = nullptr;
  Loss loss = {};      ///< of the last part's output; null: none is run
  Tensor labels = {};  ///< for it; of their values only the host's own code sees something
  /// Whose programs run the parts (by name): over a cut between two of them gradients go back whether anybody wants
  /// them or not. Null: there are no cuts.
  const Plan* plan = nullptr;
  double operations_per_second = 1e12;  ///< of PartCost's seconds
  /// Also counts what passes take in memory (parallel/model/part_memory.h); false: saved, halo and output alone, of
  /// each part by itself.
  bool memory = false;
};
/// What a dry run has found.
struct DryRun {
  /// Costs, comms and outputs of the parts; their other members are left as they were given. Seconds are those of a
  /// machine that moves a byte of an operand in the time of operations_per_byte operations, whichever of both takes
  /// longer for a kernel, and at least a nanosecond for each of forward and backward's halves.
  std::vector<PartInfo> parts;
  DType loss = DType::f32;  ///< type of the loss
};
inline constexpr double operations_per_byte = 8;

/// Carries out a pass of a part (forward, loss, backward_input or backward_weight) and adds to its cost.
using SpendOn = std::function<void(PartInfo&, ActionKind, double& cost, const std::function<void()>& pass)>;
/// Runs the parts forward and backward, one by one, under the caller's StepContext, and finds their costs and outputs.
/// Gradients are left. Returns the type of the loss.
DType run_parts(const Chain&, std::vector<PartInfo>&, Tensor x, const DryRunOptions&, const SpendOn&);

/// Runs under the caller's StepContext; a batch in it must name x's rows. x, [rows, ...]: only its shape, type and
/// place count. Weights and running statistics are left as they are, gradients end cleared. Layers and losses whose own
/// code reads values on the host see undefined ones. Throws Error where this thread has a LaunchWatch.
DryRun dry_run(const Chain&, Parameters&, std::vector<PartInfo> parts, const Tensor& x, const DryRunOptions& = {});

}  // namespace trireme
