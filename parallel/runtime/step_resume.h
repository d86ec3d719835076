// StepResume: state that a run restores in addition to Step::load_checkpoint(): weights of a file, the loss scale, and
// the order of messages.
#pragma once
#include <string>
#include <vector>

#include "parallel/runtime/loss_scale.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// The state of a step that a program saves and restores itself. The step must outlive the handle.
class StepResume {
 public:
  /// step: must outlive the handle.
  explicit StepResume(Step& step) : step_(*step.impl_) {}

  /// Overwrites weights and running statistics from a safetensors file, as import_but_head() in framework/io/weights.h.
  /// Returns the names of the last layer's tensors that do not fit and keep their values. Each rank reads what it holds
  /// between steps; call Step::gather_weights() for the other weights. A collective call. Throws Error on all ranks.
  std::vector<std::string> import_weights(const std::string& path);
  /// Restores weights and running statistics, but no optimizer, from a checkpoint's directory. Any optimizer and any
  /// number of ranks may have written it. Each rank reads what it holds between steps; call Step::gather_weights() for
  /// the other weights. A collective call. Throws Error on all ranks, as Step::load_checkpoint().
  LoadedCheckpoint load_weights(const std::string& directory);
  /// The state of loss scaling (scale 1 if it is off). Store it with a checkpoint, so that a resumed run continues
  /// exactly.
  LossScaleState loss_scale() const;
  /// state: equal on all ranks; ignored if scaling is off. Throws Error for a scale below 1, and for a number of good
  /// steps outside of [0, LossScale::period).
  void set_loss_scale(const LossScaleState& state);
  /// From now on servers, and ranks with asynchronous gossip, handle messages in the order of the run that wrote this
  /// checkpoint. So all results have the same bits. Settings must equal that run's, and the checkpoint must hold the
  /// order from the beginning of its run. Call on all ranks.
  ///
  /// This run must save its checkpoints, and call StepProbe::consolidate(), after the same steps as that run, and must
  /// stop where it stopped. Otherwise a server waits in vain and throws Error after TRIREME_TIMEOUT seconds. Throws
  /// Error:
  /// - if the strategy does not depend on the order of messages;
  /// - for a checkpoint of another layout, or without the order;
  /// - if this Step has already run in another order;
  /// - in steps after the last one of the checkpoint.
  void replay(const std::string& checkpoint);

 private:
  Step::Impl& step_;
};

}  // namespace trireme
