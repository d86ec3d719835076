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
  /// momentum in [0, 1); first: the state is not read yet; gradients count times grad_scale.
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
  /// eps > 0; weight_decay is L2, added to the gradient.
  struct Args {
    double lr, eps, weight_decay, grad_scale;
  };
  /// value and sum are overwritten.
  using Fn = void(View value, View grad, View sum, const Args&);
};
/// torch.optim.Adadelta (Zeiler, arXiv 1212.5701): square = rho square + (1 - rho) g^2; d = sqrt(delta + eps) /
/// sqrt(square + eps) g; delta = rho delta + (1 - rho) d^2; v -= lr d.
struct AdadeltaUpdate {
  static constexpr char name[] = "adadelta_update";  ///< in errors, profiles and census()
  /// rho in [0, 1), eps > 0; weight_decay is L2, added to the gradient.
  struct Args {
    double lr, rho, eps, weight_decay, grad_scale;
  };
  /// value, square (square_avg) and delta (acc_delta) are overwritten.
  using Fn = void(View value, View grad, View square, View delta, const Args&);
};
/// torch.optim.Adam (Kingma & Ba, arXiv 1412.6980): m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; value
/// -= lr (m / bias1) / (sqrt(v / bias2) + eps), bias1 = 1 - beta1^t, bias2 = 1 - beta2^t. decoupled: AdamW (arXiv
/// 1711.05101), value *= 1 - lr weight_decay before.
struct AdamUpdate {
  static constexpr char name[] = "adam_update";  ///< in errors, profiles and census()
  /// beta1, beta2 in [0, 1), eps > 0; bias1 and bias2 > 0; weight_decay is L2 unless decoupled.
  struct Args {
    double lr, beta1, beta2, eps, weight_decay, bias1, bias2, grad_scale;
    bool decoupled;
  };
  /// value, m (exp_avg) and v (exp_avg_sq) are overwritten.
  using Fn = void(View value, View grad, View m, View v, const Args&);
};

}  // namespace kernel
}  // namespace trireme
