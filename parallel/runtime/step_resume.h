// StepResume: state that a resumed run restores in addition to Step::load_checkpoint(): the loss scale, and the order
// of messages.
#pragma once
#include <string>

#include "parallel/runtime/loss_scale.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// The state of a step that a program saves and restores itself. The step must outlive the handle.
class StepResume {
 public:
  /// step: must outlive the handle.
  explicit StepResume(Step& step) : step_(*step.impl_) {}

  /// The state of loss scaling (scale 1 if it is off). A checkpoint stores it, so that a resumed run continues exactly.
  LossScaleState loss_scale() const;
  void set_loss_scale(const LossScaleState&);  ///< state: equal on all ranks; ignored if scaling is off
  /// From now on servers (and ranks with asynchronous gossip) handle messages in the order of the run that wrote this
  /// checkpoint, so that all results are equal bit for bit. Settings must equal that run's. Call on all ranks. The
  /// checkpoint must hold the order from the beginning of its run.
  ///
  /// Some ranks are ahead of others until all ranks end a step together (checkpoints, StepProbe::consolidate()). So
  /// this run must stop where that run did; otherwise a server waits in vain and throws Error after TRIREME_TIMEOUT
  /// seconds. Throws Error if no rank's steps depend on the order, for a checkpoint with another layout or without the
  /// order, and if this step has already run differently. Steps after the checkpoint's throw Error.
  void replay(const std::string& checkpoint);

 private:
  Step::Impl& step_;
};

}  // namespace trireme
