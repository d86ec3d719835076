// Optimizer updates, PyTorch's formulas. Scalars are combined in f64 and rounded once, as PyTorch does.
#include "kernels/update.h"

#include <cmath>

#include "kernels/cpu/vector.h"
#include "kernels/kernel.h"

namespace trireme {
namespace {

/// Checks that all views are parallel to value and calls f(T{}) with their type.
template <class F>
void dispatch(std::string_view op, const View& value, std::initializer_list<const View*> others, F&& f) {
  for (auto* v : others)
    check(v->numel() == value.numel() && v->dtype == value.dtype, op, "got {} {} beside values {} {}", v->dtype,
          v->shape, value.dtype, value.shape);
  if (value.dtype == DType::f64) return f(double{});
  check(value.dtype == DType::f32, op, "wants f32 or f64, got {}", value.dtype);
  f(float{});
}

void sgd(View value, View grad, View momentum, const kernel::SgdUpdate::Args& args) {
  constexpr auto op = kernel::SgdUpdate::name;
  bool heavy = args.momentum != 0;
  check(!heavy || momentum, op, "momentum {} needs its state", args.momentum);
  dispatch(op, value, {&grad, heavy ? &momentum : &grad}, [&](auto t) {
    using T = decltype(t);
    T lr = T(args.lr), decay = T(args.decay), scale = T(args.grad_scale), keep = T(args.momentum);
    T take = T(1 - args.dampening);
    T *v = value.as<T>(), *g = grad.as<T>(), *m = momentum.as<T>();
    sweep(value.numel(), 4, [=, first = args.first, nesterov = args.nesterov](Index begin, Index end) {
      if (!heavy) {
#pragma omp simd
        for (Index i = begin; i < end; ++i) v[i] -= lr * (g[i] * scale + decay * v[i]);
        return;
      }
#pragma omp simd
      for (Index i = begin; i < end; ++i) {
        T slope = g[i] * scale + decay * v[i];
        T now = first ? slope : keep * m[i] + take * slope;
        m[i] = now;
        v[i] -= lr * (nesterov ? slope + keep * now : now);
      }
    });
  });
}

void adagrad(View value, View grad, View sum, const kernel::AdagradUpdate::Args& args) {
  dispatch(kernel::AdagradUpdate::name, value, {&grad, &sum}, [&](auto t) {
    using T = decltype(t);
    T lr = T(args.lr), eps = T(args.eps), decay = T(args.decay), scale = T(args.grad_scale);
    T *v = value.as<T>(), *g = grad.as<T>(), *s = sum.as<T>();
    sweep(value.numel(), 8, [=](Index begin, Index end) {
#pragma omp simd
      for (Index i = begin; i < end; ++i) {
        T slope = g[i] * scale + decay * v[i];
        T total = s[i] + slope * slope;
        s[i] = total;
        v[i] -= lr * slope / (std::sqrt(total) + eps);
      }
    });
  });
}

void adadelta(View value, View grad, View square, View delta, const kernel::AdadeltaUpdate::Args& args) {
  dispatch(kernel::AdadeltaUpdate::name, value, {&grad, &square, &delta}, [&](auto t) {
    using T = decltype(t);
    T lr = T(args.lr), eps = T(args.eps), decay = T(args.decay), scale = T(args.grad_scale);
    T keep = T(args.rho), take = T(1 - args.rho);
    T *v = value.as<T>(), *g = grad.as<T>(), *s = square.as<T>(), *d = delta.as<T>();
    sweep(value.numel(), 12, [=](Index begin, Index end) {
#pragma omp simd
      for (Index i = begin; i < end; ++i) {
        T slope = g[i] * scale + decay * v[i];
        T mean = keep * s[i] + take * slope * slope;
        T step = std::sqrt(d[i] + eps) / std::sqrt(mean + eps) * slope;
        s[i] = mean;
        d[i] = keep * d[i] + take * step * step;
        v[i] -= lr * step;
      }
    });
  });
}

void adam(View value, View grad, View m, View v, const kernel::AdamUpdate::Args& args) {
  dispatch(kernel::AdamUpdate::name, value, {&grad, &m, &v}, [&](auto t) {
    using T = decltype(t);
    T scale = T(args.grad_scale), eps = T(args.eps);
    T decay = T(args.decoupled ? 0 : args.decay), shrink = T(args.decoupled ? 1 - args.lr * args.decay : 1);
    T keep1 = T(args.beta1), take1 = T(1 - args.beta1), keep2 = T(args.beta2), take2 = T(1 - args.beta2);
    T lr = T(args.lr / args.bias1), root = T(std::sqrt(args.bias2));
    T *w = value.as<T>(), *g = grad.as<T>(), *first = m.as<T>(), *second = v.as<T>();
    sweep(value.numel(), 12, [=](Index begin, Index end) {
#pragma omp simd
      for (Index i = begin; i < end; ++i) {
        T slope = g[i] * scale + decay * w[i];
        T a = keep1 * first[i] + take1 * slope, b = keep2 * second[i] + take2 * slope * slope;
        first[i] = a;
        second[i] = b;
        w[i] = w[i] * shrink - lr * a / (std::sqrt(b) / root + eps);
      }
    });
  });
}

const Kernel<kernel::SgdUpdate> sgd_cpu{DeviceKind::cpu, sgd};
const Kernel<kernel::AdagradUpdate> adagrad_cpu{DeviceKind::cpu, adagrad};
const Kernel<kernel::AdadeltaUpdate> adadelta_cpu{DeviceKind::cpu, adadelta};
const Kernel<kernel::AdamUpdate> adam_cpu{DeviceKind::cpu, adam};

}  // namespace
}  // namespace trireme
