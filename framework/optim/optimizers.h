// The library's optimizers: settings with PyTorch's names, defaults and formulas (kernels/formulas/update_rules.h).
// Weight decay is L2, added to the gradient, unless stated otherwise. An Optimizer throws Error for settings outside
// their ranges.
#pragma once
#include "framework/optim/optimizer_config.h"

namespace trireme {

/// Stochastic gradient descent, with momentum and Nesterov momentum (Sutskever et al., ICML 2013), as torch.optim.SGD.
struct Sgd {
  Schedule lr = 0.01;       ///< learning rate; >= 0
  double momentum = 0;      ///< [0, 1)
  double dampening = 0;     ///< [0, 1]; the momentum is updated by (1 - dampening) times the gradient
  double weight_decay = 0;  ///< >= 0
  bool nesterov = false;    ///< Nesterov momentum; needs momentum > 0 and dampening 0

  static constexpr char name[] = "sgd";       ///< in configuration files and errors
  std::vector<OptimizerField> fields();       ///< the members above, with their ranges
  std::vector<OptimizerState> state() const;  ///< momentum; no state if momentum is 0
  void validate() const;                      ///< throws Error for nesterov without momentum or with dampening
  void update(const OptimizerUpdate&) const;  ///< kernel::SgdUpdate
};

/// Adagrad (Duchi et al., JMLR 12, 2011), as torch.optim.Adagrad without lr_decay.
struct Adagrad {
  Schedule lr = 0.01;       ///< learning rate; >= 0
  double eps = 1e-10;       ///< > 0
  double weight_decay = 0;  ///< >= 0
  double initial = 0;       ///< >= 0; initial sums of squares (PyTorch's initial_accumulator_value)

  static constexpr char name[] = "adagrad";                                 ///< in configuration files and errors
  std::vector<OptimizerField> fields();                                     ///< the members above, with their ranges
  std::vector<OptimizerState> state() const { return {{"sum", initial}}; }  ///< sum of squared gradients
  void update(const OptimizerUpdate&) const;                                ///< kernel::AdagradUpdate
};

/// Adadelta (Zeiler, arXiv 1212.5701), as torch.optim.Adadelta.
struct Adadelta {
  Schedule lr = 1.0;        ///< learning rate; >= 0
  double rho = 0.9;         ///< [0, 1); decay of the mean squares
  double eps = 1e-6;        ///< > 0
  double weight_decay = 0;  ///< >= 0

  static constexpr char name[] = "adadelta";  ///< in configuration files and errors
  std::vector<OptimizerField> fields();       ///< the members above, with their ranges
  /// State: mean squares of gradient and of update.
  std::vector<OptimizerState> state() const { return {{"square_avg"}, {"acc_delta"}}; }
  void update(const OptimizerUpdate&) const;  ///< kernel::AdadeltaUpdate
};

/// Adam (Kingma and Ba, arXiv 1412.6980), as torch.optim.Adam.
struct Adam {
  Schedule lr = 0.001;      ///< learning rate; >= 0
  double beta1 = 0.9,       ///< [0, 1); decay of exp_avg
      beta2 = 0.999;        ///< [0, 1); decay of exp_avg_sq
  double eps = 1e-8;        ///< > 0
  double weight_decay = 0;  ///< >= 0

  static constexpr char name[] = "adam";  ///< in configuration files and errors
  std::vector<OptimizerField> fields();   ///< the members above, with their ranges
  /// State: first and second moment of the gradient.
  std::vector<OptimizerState> state() const { return {{"exp_avg"}, {"exp_avg_sq"}}; }
  void update(const OptimizerUpdate&) const;  ///< kernel::AdamUpdate
};

/// Adam with decoupled weight decay, which multiplies values by 1 - lr * weight_decay (Loshchilov and Hutter, arXiv
/// 1711.05101), as torch.optim.AdamW.
struct AdamW {
  Schedule lr = 0.001;         ///< learning rate; >= 0
  double beta1 = 0.9,          ///< [0, 1); decay of exp_avg
      beta2 = 0.999;           ///< [0, 1); decay of exp_avg_sq
  double eps = 1e-8;           ///< > 0
  double weight_decay = 0.01;  ///< >= 0; decoupled

  static constexpr char name[] = "adamw";  ///< in configuration files and errors
  std::vector<OptimizerField> fields();    ///< the members above, with their ranges
  /// State: first and second moment of the gradient.
  std::vector<OptimizerState> state() const { return {{"exp_avg"}, {"exp_avg_sq"}}; }
  void update(const OptimizerUpdate&) const;  ///< kernel::AdamUpdate, decoupled
};

/// RMSprop (Tieleman and Hinton, Coursera, lecture 6.5, 2012), as torch.optim.RMSprop.
struct RMSprop {
  Schedule lr = 0.01;       ///< learning rate; >= 0
  double alpha = 0.99;      ///< [0, 1); decay of square_avg
  double eps = 1e-8;        ///< > 0
  double weight_decay = 0;  ///< >= 0
  double momentum = 0;      ///< [0, 1)
  bool centered = false;    ///< divides by the gradient's standard deviation instead of its root mean square

  static constexpr char name[] = "rmsprop";  ///< in configuration files and errors
  std::vector<OptimizerField> fields();      ///< the members above, with their ranges
  /// State: mean square, momentum and mean of the gradient.
  std::vector<OptimizerState> state() const { return {{"square_avg"}, {"momentum_buffer"}, {"grad_avg"}}; }
  void update(const OptimizerUpdate&) const;  ///< kernel::Update of update::RMSprop
};

/// LAMB (You et al., arXiv 1904.00962, algorithm 2): AdamW with a learning rate per tensor, lr |v| / |r|, where r =
/// Adam's update + weight_decay v and |.| is the L2 norm of a whole tensor. The factor is 1 if either norm is 0, and
/// for biases and norm scales.
struct Lamb {
  Schedule lr = 0.001;         ///< learning rate; >= 0
  double beta1 = 0.9,          ///< [0, 1); decay of exp_avg
      beta2 = 0.999;           ///< [0, 1); decay of exp_avg_sq
  double eps = 1e-6;           ///< > 0
  double weight_decay = 0.01;  ///< >= 0

  static constexpr char name[] = "lamb";  ///< in configuration files and errors
  std::vector<OptimizerField> fields();   ///< the members above, with their ranges
  /// State: first and second moment of the gradient.
  std::vector<OptimizerState> state() const { return {{"exp_avg"}, {"exp_avg_sq"}}; }
  void direction(const OptimizerUpdate&) const;  ///< replaces u.grad by r; kernel::Update of update::LambDirection
  /// |v| / |r|; 1 if either norm is 0.
  double trust_ratio(double value_norm, double direction_norm, double weight_decay) const;
  void update(const OptimizerUpdate&) const;  ///< v -= lr times the trust ratio times r
};

/// LARS (You et al., arXiv 1708.03888): SGD with momentum and a learning rate per tensor, lr * trust_coefficient * |v|
/// / (|g| + weight_decay |v| + eps), where |.| is the L2 norm of a whole tensor. For biases and norm scales it is lr.
struct Lars {
  Schedule lr = 0.1;                 ///< learning rate; >= 0
  double momentum = 0.9;             ///< [0, 1)
  double weight_decay = 1e-4;        ///< >= 0
  double trust_coefficient = 0.001;  ///< > 0
  double eps = 1e-9;                 ///< > 0

  static constexpr char name[] = "lars";                                ///< in configuration files and errors
  std::vector<OptimizerField> fields();                                 ///< the members above, with their ranges
  std::vector<OptimizerState> state() const { return {{"momentum"}}; }  ///< momentum
  void update(const OptimizerUpdate&) const;  ///< kernel::SgdUpdate with u.weight_decay, which includes the trust ratio
  /// The factor of lr in the formula above; 1 if either norm is 0.
  double trust_ratio(double value_norm, double grad_norm, double weight_decay) const;
};

}  // namespace trireme
