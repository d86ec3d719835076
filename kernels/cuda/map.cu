// Unary formulas: kernel::Map and kernel::MapBackward.
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/formulas/pointwise.h"

namespace trireme::gpu {
namespace {

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
  const T *dy, *x, *y;
  F f;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    using A = Accumulator<T>;
    Pack<T, n> p = load<n>(dy + i), in{}, out{};
    if constexpr (F::needs_x) in = load<n>(x + i);
    if constexpr (F::needs_y) out = load<n>(y + i);
    for (int j = 0; j < n; ++j) {
      A a{}, b{};
      if constexpr (F::needs_x) a = wide(in.v[j]);
      if constexpr (F::needs_y) b = wide(out.v[j]);
      p.v[j] = rounded<T>(wide(p.v[j]) * f.slope(a, b));
    }
    store(dx + i, p);
  }
};

template <class F>
void map(View y, View x, F f) {
  check_same(y, x, F::name);
  const On on(y.device, F::name);
  dispatch_device_float(y.dtype, F::name, [&](auto t) {
    using T = decltype(t);
    each<pack<T>>(on, y.numel(), aligned(y.data, x.data), Value<F, T>{y.as<T>(), x.as<const T>(), f});
  });
}

/// A tensor that the formula does not need may be empty.
template <class F>
void map_backward(View dx, View dy, View x, View y, F f) {
  constexpr auto& op = F::backward_name;
  check_same(dx, dy, op);
  if constexpr (F::needs_x) check_same(dx, x, op);
  if constexpr (F::needs_y) check_same(dx, y, op);
  const On on(dx.device, op);
  const bool vector = aligned(dx.data, dy.data, F::needs_x ? x.data : nullptr, F::needs_y ? y.data : nullptr);
  dispatch_device_float(dx.dtype, op, [&](auto t) {
    using T = decltype(t);
    each<pack<T>>(on, dx.numel(), vector,
                  Slope<F, T>{dx.as<T>(), dy.as<const T>(), x.as<const T>(), y.as<const T>(), f});
  });
}

template <class F>
struct CudaFormula {
  Kernel<kernel::Map<F>> forward{DeviceKind::cuda, map<F>};
  Kernel<kernel::MapBackward<F>> backward{DeviceKind::cuda, map_backward<F>};
};

const pointwise::EachUnary<CudaFormula> formulas_cuda;

}  // namespace
}  // namespace trireme::gpu
