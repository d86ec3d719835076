// Inference: a guard for evaluation, as PyTorch's model.eval() and torch.inference_mode() together.
#pragma once
#include "framework/autograd/step_context.h"
#include "framework/layers/inference_cache.h"

namespace trireme {

/// Evaluation mode without recording, while it lives. Weights and running statistics must not change in that time:
/// batch norms are folded into the convolutions before them, and filters are packed, once.
class Inference {
 public:
  Inference() : pass_(evaluation()) {}

 private:
  StepContext evaluation() {
    StepContext pass = StepContext::current();
    pass.batch.training = false;
    pass.frozen = &frozen_;
    return pass;
  }
  InferenceCache frozen_;
  StepScope pass_;
  NoGrad no_grad_;
};

}  // namespace trireme
