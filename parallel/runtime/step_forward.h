// StepForward: a handle to run a Step's model forward, for evaluation, where its weights are between steps.
#pragma once
#include "parallel/runtime/parts_forward.h"
#include "parallel/runtime/step.h"

namespace trireme {

class StepForward {
 public:
  /// step: must outlive the handle.
  explicit StepForward(Step& step) : step_(*step.impl_) {}
  /// Whether ranks lack memory for some weights between steps (zero(3), pipeline). Then either all ranks evaluate by
  /// this handle, on the rows of share(), or call Step::gather_weights() first. False for zero(1) and zero(2), and for
  /// plans whose workers train separately or that have servers: their evaluation needs gather_weights().
  bool is_needed() const;
  /// The share of each batch whose rows this rank passes: Step::shard() without micro-batches.
  RankShare share() const;
  /// The ranks of the step's mesh; lives as long as the mesh.
  World& world() const;
  /// Runs the model on rows of share(): see PartsForward. A collective call.
  Tensor operator()(const Tensor& x, const PartsForward::RunPart&) const;

 private:
  Step::Impl& step_;
};

}  // namespace trireme
