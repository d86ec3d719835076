// The optimizers' formulas (kernels/contracts/update.h), PyTorch's, each written once for all backends: a rule changes
// one value and its state by its gradient. Scalars are combined in f64 and rounded once, as PyTorch does. T is float or
// double.
#pragma once
#include <cmath>

#include "kernels/contracts/update.h"
#include "kernels/formulas/math.h"

namespace trireme::update {

template <class T>
struct Sgd {
  T lr, weight_decay, scale;
  explicit Sgd(const kernel::SgdUpdate::Args& a)
      : lr(T(a.lr)), weight_decay(T(a.weight_decay)), scale(T(a.grad_scale)) {}
  constexpr void operator()(T& value, T grad) const { value -= lr * (grad * scale + weight_decay * value); }
};
template <class T>
struct Momentum {
  T lr, weight_decay, scale, keep, take;
  bool first, nesterov;
  explicit Momentum(const kernel::SgdUpdate::Args& a)
      : lr(T(a.lr)),
        weight_decay(T(a.weight_decay)),
        scale(T(a.grad_scale)),
        keep(T(a.momentum)),
        take(T(1 - a.dampening)),
        first(a.first),
        nesterov(a.nesterov) {}
  constexpr void operator()(T& value, T grad, T& momentum) const {
    T slope = grad * scale + weight_decay * value;
    T now = first ? slope : keep * momentum + take * slope;
    momentum = now;
    value -= lr * (nesterov ? slope + keep * now : now);
  }
};
template <class T>
struct Adagrad {
  T lr, eps, weight_decay, scale;
  explicit Adagrad(const kernel::AdagradUpdate::Args& a)
      : lr(T(a.lr)), eps(T(a.eps)), weight_decay(T(a.weight_decay)), scale(T(a.grad_scale)) {}
  constexpr void operator()(T& value, T grad, T& sum) const {
    T slope = grad * scale + weight_decay * value;
    T total = sum + slope * slope;
    sum = total;
    value -= lr * slope / (math::sqrt(total) + eps);
  }
};
template <class T>
struct Adadelta {
  T lr, eps, weight_decay, scale, keep, take;
  explicit Adadelta(const kernel::AdadeltaUpdate::Args& a)
      : lr(T(a.lr)),
        eps(T(a.eps)),
        weight_decay(T(a.weight_decay)),
        scale(T(a.grad_scale)),
        keep(T(a.rho)),
        take(T(1 - a.rho)) {}
  constexpr void operator()(T& value, T grad, T& square, T& delta) const {
    T slope = grad * scale + weight_decay * value;
    T mean = keep * square + take * slope * slope;
    T step = math::sqrt(delta + eps) / math::sqrt(mean + eps) * slope;
    square = mean;
    delta = keep * delta + take * step * step;
    value -= lr * step;
  }
};
template <class T>
struct Adam {
  T scale, eps, weight_decay, shrink, keep1, take1, keep2, take2, lr, root;
  explicit Adam(const kernel::AdamUpdate::Args& a)
      : scale(T(a.grad_scale)),
        eps(T(a.eps)),
        weight_decay(T(a.decoupled ? 0 : a.weight_decay)),
        shrink(T(a.decoupled ? 1 - a.lr * a.weight_decay : 1)),
        keep1(T(a.beta1)),
        take1(T(1 - a.beta1)),
        keep2(T(a.beta2)),
        take2(T(1 - a.beta2)),
        lr(T(a.lr / a.bias1)),
        root(T(std::sqrt(a.bias2))) {}
  constexpr void operator()(T& value, T grad, T& first, T& second) const {
    T slope = grad * scale + weight_decay * value;
    T a = keep1 * first + take1 * slope, b = keep2 * second + take2 * slope * slope;
    first = a;
    second = b;
    value = value * shrink - lr * a / (math::sqrt(b) / root + eps);
  }
};

/// The update's type, f32 or f64, for a rule: calls f(T{}). Throws Error unless all views are parallel to value.
template <class F>
void dispatch(std::string_view op, const View& value, std::initializer_list<const View*> others, F&& f) {
  for (auto* v : others)
    check(v->numel() == value.numel() && v->dtype == value.dtype, op, "got {} {} beside values {} {}", v->dtype,
          v->shape, value.dtype, value.shape);
  if (value.dtype == DType::f64) return f(double{});
  check(value.dtype == DType::f32, op, "wants f32 or f64, got {}", value.dtype);
  f(float{});
}
/// Whether the step takes the rule with momentum. Throws Error where its state is missing.
inline bool has_momentum(const kernel::SgdUpdate::Args& args, const View& momentum) {
  const bool heavy = args.momentum != 0;
  check(!heavy || momentum, kernel::SgdUpdate::name, "momentum {} needs its state", args.momentum);
  return heavy;
}

}  // namespace trireme::update
