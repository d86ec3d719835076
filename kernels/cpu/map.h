// CPU kernels of a unary formula (kernels/formulas/pointwise.h). To get them for your own formula, write this line in
// one source file; ops::unary (framework/ops/unary.h) then makes an op of it:
//   const CpuFormula<HardShrink> hard_shrink_cpu;
#pragma once
#include <tuple>

#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"

namespace trireme {
namespace detail {

template <class T>
using MapLoop = void (*)(const void* formula, T* y, const T* x, Index n);
template <class T>
using MapBackwardLoop = void (*)(const void* formula, T* dx, const T* dy, const T* x, const T* y, Index n);
/// The loops of a formula, one per type that the CPU computes in.
template <template <class> class Loop>
using FloatLoops = std::tuple<Loop<float>, Loop<double>, Loop<bf16>>;

/// y = f(x). Throws Error naming the formula.
void run_map(const View& y, const View& x, const void* formula, std::string_view name,
             const FloatLoops<MapLoop>& loops);
/// dx = dy * f'(x). x and y are null if the formula does not need them.
void run_map_backward(const View& dx, const View& dy, const View* x, const View* y, const void* formula,
                      std::string_view name, const FloatLoops<MapBackwardLoop>& loops);

template <class F, class T>
void map_loop(const void* formula, T* y, const T* x, Index n) {
  const F f = *static_cast<const F*>(formula);  // no store through y can change it
#pragma omp simd
  for (Index i = 0; i < n; ++i) put(y[i], f.value(static_cast<Accumulator<T>>(x[i])));
}
template <class F, class T>
void map_backward_loop(const void* formula, T* dx, const T* dy, const T* x, const T* y, Index n) {
  using A = Accumulator<T>;
  const F f = *static_cast<const F*>(formula);
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    A a{}, b{};
    if constexpr (F::needs_x) a = x[i];
    if constexpr (F::needs_y) b = y[i];
    put(dx[i], static_cast<A>(dy[i]) * f.slope(a, b));
  }
}

template <class F>
void map(View y, View x, F f) {
  run_map(y, x, &f, F::name,
          {vectorised_loop<map_loop<F, float>>(), vectorised_loop<map_loop<F, double>>(),
           vectorised_loop<map_loop<F, bf16>>()});
}
template <class F>
void map_backward(View dx, View dy, View x, View y, F f) {
  run_map_backward(dx, dy, F::needs_x ? &x : nullptr, F::needs_y ? &y : nullptr, &f, F::backward_name,
                   {vectorised_loop<map_backward_loop<F, float>>(), vectorised_loop<map_backward_loop<F, double>>(),
                    vectorised_loop<map_backward_loop<F, bf16>>()});
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
