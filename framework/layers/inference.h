// Inference: a guard for evaluation, as PyTorch's model.eval() and torch.inference_mode() together.
#pragma once
#include "framework/autograd/step_context.h"
#include "framework/layers/inference_cache.h"

namespace trireme {

/// Evaluation mode without recording, while it lives. Weights and running statistics must not change in that time:
/// batch norms are folded into the convolutions before them, and filters are packed, once.
class Inference {
 public:
  Inference() : scope_(evaluation()) {}

 private:
  StepContext evaluation() {
    StepContext context = StepContext::current();
    context.batch.training = false;
    context.inference_cache = &cache_;
    return context;
  }
  InferenceCache cache_;
  StepScope scope_;
  NoGrad no_grad_;
};

}  // namespace trireme
