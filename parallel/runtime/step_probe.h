// StepProbe: measurements and properties of a step: outputs, times, memory, traffic, and properties of its strategy.
#pragma once
#include <string>
#include <vector>

#include "parallel/model/memory.h"
#include "parallel/runtime/step.h"
#include "parallel/runtime/timeline.h"

namespace trireme {

/// The communicator calls of a rank in a step, and the bytes that it sent, by mesh axis.
struct StepTraffic {
  Traffic planned,  ///< according to the plan
      counted;      ///< as counted by the communicators
};

/// Measurements and properties of a step, which must outlive the handle.
class StepProbe {
 public:
  /// step: must outlive the handle.
  explicit StepProbe(Step& step) : step_(*step.impl_) {}

  /// The results of StepOptions::keep_outputs in the last step, for the rows whose loss this rank computed. The next
  /// step may overwrite them. Undefined if there were none, for example on all stages of a pipeline but the last.
  Tensor outputs() const;
  /// The targets of the rows of outputs().
  Tensor targets() const;
  /// L2 norm of the gradient of the last global batch, before clipping; if trains_apart(), of this rank's worker. It is
  /// computed if gradients are clipped, and in steps that check gradients (FiniteChecks::every) on ranks that update
  /// all parameters; else NaN.
  double grad_norm() const;
  /// As Step::gather_weights(), and also brings the optimizer's state to all ranks. From this call to the next step
  /// every rank holds all of it: with Adam twice the size of the weights. At other times a rank holds only the state
  /// for the slices that it updates. A collective call.
  void consolidate();

  /// Turns profiling on or off: from the next step on each action is timed and memory is counted; the host then waits
  /// for devices after each action.
  void record(bool on);
  /// Times of all actions on all ranks in the last recorded step. A collective call.
  Timeline timeline();
  /// Peak memory of each rank in that step. A collective call.
  std::vector<RankMemory> memory();
  /// Calls and bytes that this rank sent in the last step, planned and counted. Both are equal, with two exceptions:
  /// one_weird_trick if ranks had different numbers of rows, and asynchronous gossip, in which odd ranks send once per
  /// request. For the planned side the model makes a dry run on that batch's shape (parallel/model/dry_run.h). So
  /// custom layers and losses that read values on the host read undefined values, and gradients are cleared. Throws
  /// Error before the first step.
  ///
  /// phase: empty, or a phase on call (parallel/strategies/on_call.h), whose last run is returned instead:
  /// - "set-up", "flush", "diagnosis";
  /// - "evaluation" and "consolidation": a gather_weights() and a consolidate() that sent something;
  /// - "saving": one exchange.
  ///
  /// The count is 0 if the phase never ran.
  StepTraffic traffic(const std::string& phase = "") const;
  /// Total bytes of this rank's calls in all steps so far: payload_bytes() (parallel/comm/world/traffic.h).
  Index bytes_sent() const;
  /// The largest number of micro-batches whose activations this rank held at once in the last step. A micro-batch
  /// counts once for each segment of parts (parallel/plan/liveness.h) that holds its activations.
  int most_in_flight() const;
  /// Whether the last step was replayed (StepOptions::cuda_graphs).
  bool replayed() const;
  /// Why steps are not replayed although cuda_graphs is set and the plan allows it; empty: no reason so far.
  std::string not_replayed() const;

  /// The slices of the flat block that this rank updates, in order.
  const std::vector<Slice>& updated() const;
  /// Whether workers train separately (Plan::consistency is not synchronous). A worker is a group of ranks with equal
  /// weights after every step. Step then returns the mean loss of the worker's rows.
  bool trains_apart() const;
  /// Whether ranks hold different parts of weights (strategies tensor, one_weird_trick). Then all ranks must evaluate
  /// Step::model() together, on the rows of Step::shard(), and must save and load together; each rank reads the file.
  bool is_tensor_parallel() const;
  const SplitOptions& split() const;  ///< how ranks split the layers
  /// How the strategy promises to relate to the serial run, for this model.
  Claim claim() const;
  /// The rows over which batch norms compute their statistics, for reports: "global", "local: each rank's rows", "each
  /// micro-batch over all ranks". Empty: the model has no batch norm.
  std::string batch_norm() const;
  /// The weights that Step::gather_weights() brings to all ranks for evaluation and files, for reports: "the servers'
  /// weights", "the mean of all workers' weights". Empty: all ranks train the same.
  std::string evaluated_weights() const;

 private:
  Step::Impl& step_;
};

}  // namespace trireme
