// CPU kernels of a unary formula (kernels/formulas/pointwise.h). To get them for your own formula, write this line in
// one source file; ops::unary (framework/ops/unary.h) then makes an op of it:
//   const CpuFormula<HardShrink> hard_shrink_cpu;
#pragma once
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"

namespace trireme {
namespace detail {

template <class F>
static void map(View y, View x, F f) {  // static: called once, so inlined into one piece
  check_same(y, x, F::name);
  dispatch_float(y.dtype, F::name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    // f comes last in the capture: an empty one between the pointers costs small tensors 10 ns (store forwarding).
    sweep(y.numel(), 4, [to = y.as<T>(), from = x.as<const T>(), f](Index begin, Index end) {
      const F g = f;  // no store through `to` can change it
#pragma omp simd
      for (Index i = begin; i < end; ++i) put(to[i], g.value(static_cast<A>(from[i])));
    });
  });
}

/// x and y may be empty if the formula does not need them.
template <class F>
static void map_backward(View dx, View dy, View x, View y, F f) {
  check_same(dx, dy, F::backward_name);
  if constexpr (F::needs_x) check_same(dx, x, F::backward_name);
  if constexpr (F::needs_y) check_same(dx, y, F::backward_name);
  dispatch_float(dx.dtype, F::backward_name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    T *to = dx.as<T>(), *from = dy.as<T>(), *in = x.as<T>(), *out = y.as<T>();
    sweep(dx.numel(), 4, [=](Index begin, Index end) {
      const F g = f;
#pragma omp simd
      for (Index i = begin; i < end; ++i) {
        A a{}, b{};
        if constexpr (F::needs_x) a = in[i];
        if constexpr (F::needs_y) b = out[i];
        put(to[i], static_cast<A>(from[i]) * g.slope(a, b));
      }
    });
  });
}

}  // namespace detail

/// Registers kernel::Map<F> and kernel::MapBackward<F> for the CPU, permanently. f32, f64 and bf16; Error for other
/// types.
template <class F>
struct CpuFormula {
  Kernel<kernel::Map<F>> forward{DeviceKind::cpu, detail::map<F>};                    ///< y = f(x)
  Kernel<kernel::MapBackward<F>> backward{DeviceKind::cpu, detail::map_backward<F>};  ///< dx = dy * f'(x)
};

}  // namespace trireme
