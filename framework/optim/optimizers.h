// The library's optimizers: settings with PyTorch's names, defaults and formulas (kernels/contracts/update.h). Weight
// decay is L2, added to the gradient, unless said otherwise. An Optimizer refuses settings outside their ranges.
#pragma once
#include "framework/optim/optimizer_config.h"

namespace trireme {

/// Stochastic gradient descent with momentum, Nesterov's (Sutskever et al., ICML 2013) or not, as torch.optim.SGD.
struct Sgd {
  Schedule lr = 0.01;
  double momentum = 0;   ///< [0, 1)
  double dampening = 0;  ///< [0, 1]; of the gradient's part in the momentum
  double weight_decay = 0;
  bool nesterov = false;  ///< wants momentum, and no dampening

  static constexpr char name[] = "sgd";
  std::vector<OptimizerField> fields();
  std::vector<OptimizerState> state() const;
  void validate() const;
  void update(const OptimizerUpdate&) const;
};

/// Duchi et al. (JMLR 12, 2011).
struct Adagrad {
  Schedule lr = 0.01;
  double eps = 1e-10;  ///< > 0
  double weight_decay = 0;
  double initial = 0;  ///< of the sums of squares

  static constexpr char name[] = "adagrad";
  std::vector<OptimizerField> fields();
  std::vector<OptimizerState> state() const { return {{"sum", initial}}; }
  void update(const OptimizerUpdate&) const;
};

/// Zeiler (arXiv 1212.5701).
struct Adadelta {
  Schedule lr = 1.0;
  double rho = 0.9;   ///< [0, 1)
  double eps = 1e-6;  ///< > 0
  double weight_decay = 0;

  static constexpr char name[] = "adadelta";
  std::vector<OptimizerField> fields();
  std::vector<OptimizerState> state() const { return {{"square_avg"}, {"acc_delta"}}; }
  void update(const OptimizerUpdate&) const;
};

/// Kingma and Ba (arXiv 1412.6980).
struct Adam {
  Schedule lr = 0.001;
  double beta1 = 0.9, beta2 = 0.999;  ///< [0, 1)
  double eps = 1e-8;                  ///< > 0
  double weight_decay = 0;

  static constexpr char name[] = "adam";
  std::vector<OptimizerField> fields();
  std::vector<OptimizerState> state() const { return {{"exp_avg"}, {"exp_avg_sq"}}; }
  void update(const OptimizerUpdate&) const;
};

/// Adam with decoupled weight decay: values shrink by lr * weight_decay (Loshchilov and Hutter, arXiv 1711.05101).
struct AdamW {
  Schedule lr = 0.001;
  double beta1 = 0.9, beta2 = 0.999;  ///< [0, 1)
  double eps = 1e-8;                  ///< > 0
  double weight_decay = 0.01;

  static constexpr char name[] = "adamw";
  std::vector<OptimizerField> fields();
  std::vector<OptimizerState> state() const { return {{"exp_avg"}, {"exp_avg_sq"}}; }
  void update(const OptimizerUpdate&) const;
};

/// SGD with a rate per tensor, lr * trust_coefficient * |v| / (|g| + weight_decay |v|) (You et al., arXiv 1708.03888);
/// for biases and norm scales plain SGD.
struct Lars {
  Schedule lr = 0.1;
  double momentum = 0.9;  ///< [0, 1)
  double weight_decay = 1e-4;
  double trust_coefficient = 0.001;  ///< > 0
  double eps = 1e-9;                 ///< > 0

  static constexpr char name[] = "lars";
  std::vector<OptimizerField> fields();
  std::vector<OptimizerState> state() const { return {{"momentum"}}; }
  void update(const OptimizerUpdate&) const;
  double trust_ratio(double value_norm, double grad_norm, double weight_decay) const;
};

}  // namespace trireme
