// Optimizer updates over flat ranges: value, gradient and state are 1-D views of one length and type (f32 or f64); the
// gradient is taken times grad_scale. One pass each. Throw Error for views that differ.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

namespace kernel {

/// torch.optim.SGD: g += weight_decay v; m = momentum m + (1 - dampening) g (first step: m = g); g = nesterov ? g +
/// momentum m : m; v -= lr g.
struct SgdUpdate {
  static constexpr char name[] = "sgd_update";  ///< in errors, profiles and census()
  struct Args {
    double lr, momentum, dampening, weight_decay, grad_scale;
    bool nesterov, first;
  };
  /// value and momentum are overwritten; momentum may be View{} where args.momentum is 0.
  using Fn = void(View value, View grad, View momentum, const Args&);
};
/// torch.optim.Adagrad (Duchi et al., JMLR 12, 2011): sum += g^2; v -= lr g / (sqrt(sum) + eps).
struct AdagradUpdate {
  static constexpr char name[] = "adagrad_update";  ///< in errors, profiles and census()
  struct Args {
    double lr, eps, weight_decay, grad_scale;
  };
  /// value and sum are overwritten.
  using Fn = void(View value, View grad, View sum, const Args&);
};
/// Zeiler 2012 (arXiv 1212.5701), PyTorch's form.
struct AdadeltaUpdate {
  static constexpr char name[] = "adadelta_update";  ///< in errors, profiles and census()
  struct Args {
    double lr, rho, eps, weight_decay, grad_scale;
  };
  /// value, square (square_avg) and delta (acc_delta) are overwritten.
  using Fn = void(View value, View grad, View square, View delta, const Args&);
};
/// Kingma & Ba (arXiv 1412.6980); decoupled: AdamW (arXiv 1711.05101). bias1/bias2 = 1 - beta^t.
struct AdamUpdate {
  static constexpr char name[] = "adam_update";  ///< in errors, profiles and census()
  struct Args {
    double lr, beta1, beta2, eps, weight_decay, bias1, bias2, grad_scale;
    bool decoupled;
  };
  /// value, m (exp_avg) and v (exp_avg_sq) are overwritten.
  using Fn = void(View value, View grad, View m, View v, const Args&);
};

}  // namespace kernel
}  // namespace trireme
