// Unary formulas: kernel::Map and kernel::MapBackward. The most frequent formulas have separate kernels in f32, bf16
// and f16. The others share one kernel per type, which calls a function that chooses the formula: it is compiled once,
// and waiting for memory takes longer than the call.
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cuda/choice.cuh"
#include "kernels/formulas/pointwise.h"

namespace trireme::gpu {
namespace {

using Unary = Formulas<pointwise::EachUnary<std::type_identity>>;
template <class F>
constexpr bool often = OneOf<F, pointwise::Relu, pointwise::Gelu, pointwise::GeluTanh, pointwise::Sigmoid,
                             pointwise::Silu, pointwise::Tanh>;

/// Any formula.
struct Chosen {
  static constexpr bool needs_x = true, needs_y = true;
  Choice choice;

  template <class A>
  [[gnu::noinline]] __device__ static A value_of(Choice choice, A x) {
    A v = 0;
    Unary::with(choice, [&](const auto& f) { v = f.value(x); });
    return v;
  }
  template <class A>
  [[gnu::noinline]] __device__ static A slope_of(Choice choice, A x, A y) {
    A v = 0;
    Unary::with(choice, [&](const auto& f) { v = f.slope(x, y); });
    return v;
  }
  template <class A>
  __device__ A value(A x) const {
    return value_of(choice, x);
  }
  template <class A>
  __device__ A slope(A x, A y) const {
    return slope_of(choice, x, y);
  }
};

template <class F, class T>
struct Value {
  T* y;
  const T* x;
  F f;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    Pack<T, n> p = load<n>(x + i);
    for (int j = 0; j < n; ++j) p.v[j] = rounded<T>(f.value(wide(p.v[j])));
    store(y + i, p);
  }
};

template <class F, class T>
struct Slope {
  T* dx;
  const T *dy, *x, *y;  ///< x and y: null where the formula does not need them
  F f;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    Pack<T, n> p = load<n>(dy + i), in{}, out{};
    if (F::needs_x && x) in = load<n>(x + i);
    if (F::needs_y && y) out = load<n>(y + i);
    for (int j = 0; j < n; ++j) p.v[j] = rounded<T>(wide(p.v[j]) * f.slope(wide(in.v[j]), wide(out.v[j])));
    store(dx + i, p);
  }
};

template <class F>
void map_by(std::string_view op, const View& y, const View& x, const F& f) {
  check_same(y, x, op);
  const On on(y.device, op);
  dispatch_device_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    if constexpr (!often<F> || !std::is_same_v<T, double>)
      each<pack<T>>(on, y.numel(), aligned(y.data, x.data), Value<F, T>{y.as<T>(), x.as<const T>(), f});
  });
}
/// x, y: null where the formula does not need them.
template <class F>
void map_backward_by(std::string_view op, const View& dx, const View& dy, const View* x, const View* y, const F& f) {
  for (const View* operand : {&dy, x, y})
    if (operand) check_same(dx, *operand, op);
  const void *in = x ? x->data : nullptr, *out = y ? y->data : nullptr;
  const On on(dx.device, op);
  dispatch_device_float(dx.dtype, op, [&](auto t) {
    using T = decltype(t);
    if constexpr (!often<F> || !std::is_same_v<T, double>)
      each<pack<T>>(
          on, dx.numel(), aligned(dx.data, dy.data, in, out),
          Slope<F, T>{dx.as<T>(), dy.as<const T>(), static_cast<const T*>(in), static_cast<const T*>(out), f});
  });
}

template <class F>
void map(View y, View x, F f) {
  if constexpr (often<F>)
    if (y.dtype != DType::f64) return map_by(F::name, y, x, f);
  map_by(F::name, y, x, Chosen{Unary::choice(f)});
}
/// A tensor that the formula does not need may be empty.
template <class F>
void map_backward(View dx, View dy, View x, View y, F f) {
  constexpr auto& op = F::backward_name;
  const View *in = F::needs_x ? &x : nullptr, *out = F::needs_y ? &y : nullptr;
  if constexpr (often<F>)
    if (dx.dtype != DType::f64) return map_backward_by(op, dx, dy, in, out, f);
  map_backward_by(op, dx, dy, in, out, Chosen{Unary::choice(f)});
}

template <class F>
struct CudaFormula {
  Kernel<kernel::Map<F>> forward{DeviceKind::cuda, map<F>};
  Kernel<kernel::MapBackward<F>> backward{DeviceKind::cuda, map_backward<F>};
};

const pointwise::EachUnary<CudaFormula> unary_formulas_cuda;

}  // namespace
}  // namespace trireme::gpu
