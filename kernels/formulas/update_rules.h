// The update formulas of the optimizers, as in PyTorch, each written once for all backends. A rule has settings and,
// for values of type T (float or double), the update of one value and its state by its gradient. Settings are combined
// in f64 and rounded once to T, as in PyTorch. The gradient used is grad_scale times the given one. Branches select a
// value with ?: and continue with it: if branches contained the multiply-adds, vector code and the loop's tail would
// fuse different ones.
#pragma once
#include <cmath>

#include "kernels/contracts/update.h"
#include "kernels/formulas/math.h"
#include "kernels/plans/checks.h"

namespace trireme::update {

/// torch.optim.SGD without momentum: v -= lr (g + weight_decay v).
struct Sgd {
  static constexpr char name[] = "sgd_update";
  static constexpr int states = 0;
  double lr, weight_decay, grad_scale;

  template <class T>
  struct On {
    T lr, weight_decay, scale;
    explicit On(const Sgd& r) : lr(T(r.lr)), weight_decay(T(r.weight_decay)), scale(T(r.grad_scale)) {}
    constexpr void operator()(T& value, T grad) const { value -= lr * (grad * scale + weight_decay * value); }
  };
};
/// torch.optim.SGD: g += weight_decay v; m = momentum m + (1 - dampening) g (first step: m = g); v -= lr m, or v -= lr
/// (g + momentum m) with nesterov.
struct Momentum {
  static constexpr char name[] = "momentum_update";
  static constexpr int states = 1;
  double lr, weight_decay, grad_scale, momentum, dampening;
  bool nesterov, first;

  template <class T>
  struct On {
    T lr, weight_decay, scale, keep, take;
    bool nesterov, first;
    explicit On(const Momentum& r)
        : lr(T(r.lr)),
          weight_decay(T(r.weight_decay)),
          scale(T(r.grad_scale)),
          keep(T(r.momentum)),
          take(T(1 - r.dampening)),
          nesterov(r.nesterov),
          first(r.first) {}
    constexpr void operator()(T& value, T grad, T& momentum) const {
      T slope = grad * scale + weight_decay * value;
      T now = first ? slope : keep * momentum + take * slope;
      momentum = now;
      value -= lr * (nesterov ? slope + keep * now : now);
    }
  };
};
/// torch.optim.Adagrad (Duchi et al., JMLR 12, 2011).
struct Adagrad {
  static constexpr char name[] = "adagrad_update";
  static constexpr int states = 1;
  double lr, weight_decay, grad_scale, eps;

  template <class T>
  struct On {
    T lr, weight_decay, scale, eps;
    explicit On(const Adagrad& r)
        : lr(T(r.lr)), weight_decay(T(r.weight_decay)), scale(T(r.grad_scale)), eps(T(r.eps)) {}
    constexpr void operator()(T& value, T grad, T& sum) const {
      T slope = grad * scale + weight_decay * value;
      T total = sum + slope * slope;
      sum = total;
      value -= lr * slope / (math::sqrt(total) + eps);
    }
  };
};
/// torch.optim.Adadelta (Zeiler, arXiv 1212.5701).
struct Adadelta {
  static constexpr char name[] = "adadelta_update";
  static constexpr int states = 2;
  double lr, weight_decay, grad_scale, rho, eps;

  template <class T>
  struct On {
    T lr, weight_decay, scale, keep, take, eps;
    explicit On(const Adadelta& r)
        : lr(T(r.lr)),
          weight_decay(T(r.weight_decay)),
          scale(T(r.grad_scale)),
          keep(T(r.rho)),
          take(T(1 - r.rho)),
          eps(T(r.eps)) {}
    constexpr void operator()(T& value, T grad, T& square, T& delta) const {
      T slope = grad * scale + weight_decay * value;
      T mean = keep * square + take * slope * slope;
      T step = math::sqrt(delta + eps) / math::sqrt(mean + eps) * slope;
      square = mean;
      delta = keep * delta + take * step * step;
      value -= lr * step;
    }
  };
};
/// torch.optim.RMSprop: square = alpha square + (1 - alpha) g^2; mean = alpha mean + (1 - alpha) g if centered, else 0;
/// buffer = momentum buffer + g / (sqrt(square - mean^2) + eps); v -= lr buffer.
struct RMSprop {
  static constexpr char name[] = "rmsprop_update";
  static constexpr int states = 3;
  double lr, weight_decay, grad_scale, alpha, eps, momentum;
  bool centered;

  template <class T>
  struct On {
    T lr, weight_decay, scale, keep, take, eps, momentum;
    bool centered;
    explicit On(const RMSprop& r)
        : lr(T(r.lr)),
          weight_decay(T(r.weight_decay)),
          scale(T(r.grad_scale)),
          keep(T(r.alpha)),
          take(T(1 - r.alpha)),
          eps(T(r.eps)),
          momentum(T(r.momentum)),
          centered(r.centered) {}
    constexpr void operator()(T& value, T grad, T& square, T& velocity, T& mean) const {
      T slope = grad * scale + weight_decay * value;
      T squares = keep * square + take * slope * slope, average = keep * mean + take * slope;
      square = squares;
      mean = average;
      T variance = centered ? squares - average * average : squares;
      T now = momentum * velocity + slope / (math::sqrt(variance) + eps);
      velocity = now;
      value -= lr * now;
    }
  };
};
/// Adam's step of one number: lr mean / (sqrt(square) + eps), both moments corrected for their bias.
template <class T>
struct AdamStep {
  T eps, keep1, take1, keep2, take2, lr, root;
  template <class Rule>
  AdamStep(const Rule& r, double rate)
      : eps(T(r.eps)),
        keep1(T(r.beta1)),
        take1(T(1 - r.beta1)),
        keep2(T(r.beta2)),
        take2(T(1 - r.beta2)),
        lr(T(rate / r.bias1)),
        root(T(std::sqrt(r.bias2))) {}
  constexpr T operator()(T slope, T& first, T& second) const {
    T a = keep1 * first + take1 * slope, b = keep2 * second + take2 * slope * slope;
    first = a;
    second = b;
    return lr * a / (math::sqrt(b) / root + eps);
  }
};
/// torch.optim.Adam (Kingma and Ba, arXiv 1412.6980), or AdamW if decoupled (arXiv 1711.05101). bias1 and bias2 are 1 -
/// beta1^t and 1 - beta2^t in step t = 1, 2, ...
struct Adam {
  static constexpr char name[] = "adam_update";
  static constexpr int states = 2;
  double lr, weight_decay, grad_scale, beta1, beta2, eps, bias1, bias2;
  bool decoupled;

  template <class T>
  struct On {
    T scale, weight_decay, shrink;
    AdamStep<T> step;
    explicit On(const Adam& r)
        : scale(T(r.grad_scale)),
          weight_decay(T(r.decoupled ? 0 : r.weight_decay)),
          shrink(T(r.decoupled ? 1 - r.lr * r.weight_decay : 1)),
          step(r, r.lr) {}
    constexpr void operator()(T& value, T grad, T& first, T& second) const {
      value = value * shrink - step(grad * scale + weight_decay * value, first, second);
    }
  };
};
/// LAMB's direction (You et al., arXiv 1904.00962, algorithm 2) in place of the gradient: Adam's step for lr 1, plus
/// weight_decay v. The gradient is the operand that is overwritten, and the value is the other one.
struct LambDirection {
  static constexpr char name[] = "lamb_direction";
  static constexpr int states = 2;
  double weight_decay, grad_scale, beta1, beta2, eps, bias1, bias2;

  template <class T>
  struct On {
    T scale, weight_decay;
    AdamStep<T> step;
    explicit On(const LambDirection& r) : scale(T(r.grad_scale)), weight_decay(T(r.weight_decay)), step(r, 1) {}
    constexpr void operator()(T& grad, T value, T& first, T& second) const {
      grad = step(grad * scale, first, second) + weight_decay * value;
    }
  };
};

/// Checks the operands (kernels/contracts/update.h) and calls f(rule for the values' type, T{}).
template <class Rule, class F>
void dispatch(const Rule& rule, const View& value, const View& grad, const View& state0, const View& state1,
              const View& state2, F&& f) {
  const View* const others[] = {&grad, &state0, &state1, &state2};
  for (int i = 0; i <= Rule::states; ++i)
    check(others[i]->numel() == value.numel() && others[i]->dtype == value.dtype, Rule::name,
          "got {} {} for values {} {}, expected the same type and number", others[i]->dtype, others[i]->shape,
          value.dtype, value.shape);
  if (value.dtype == DType::f64) return f(typename Rule::template On<double>(rule), double{});
  check(value.dtype == DType::f32, Rule::name, "got {}, expected f32 or f64", value.dtype);
  f(typename Rule::template On<float>(rule), float{});
}

}  // namespace trireme::update
