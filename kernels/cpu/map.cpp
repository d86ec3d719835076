// Unary formulas: kernel::Map and kernel::MapBackward.
#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

template <class F>
void map(View y, View x) {
  check_same(y, x, F::name);
  dispatch_float(y.dtype, F::name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    sweep(y.numel(), 4, [to = y.as<T>(), from = x.as<const T>()](Index begin, Index end) {
#pragma omp simd
      for (Index i = begin; i < end; ++i) put(to[i], F::value(static_cast<A>(from[i])));
    });
  });
}

/// A tensor that the formula does not need may be empty.
template <class F>
void map_backward(View dx, View dy, View x, View y) {
  check_same(dx, dy, F::backward_name);
  if constexpr (F::needs_x) check_same(dx, x, F::backward_name);
  if constexpr (F::needs_y) check_same(dx, y, F::backward_name);
  dispatch_float(dx.dtype, F::backward_name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    T *to = dx.as<T>(), *from = dy.as<T>(), *in = x.as<T>(), *out = y.as<T>();
    sweep(dx.numel(), 4, [=](Index begin, Index end) {
#pragma omp simd
      for (Index i = begin; i < end; ++i) {
        A a{}, b{};
        if constexpr (F::needs_x) a = in[i];
        if constexpr (F::needs_y) b = out[i];
        put(to[i], static_cast<A>(from[i]) * F::slope(a, b));
      }
    });
  });
}

template <class F>
struct Unary {
  Kernel<kernel::Map<F>> forward{DeviceKind::cpu, map<F>};
  Kernel<kernel::MapBackward<F>> backward{DeviceKind::cpu, map_backward<F>};
};

const Unary<pointwise::Relu> relu;
const Unary<pointwise::LeakyRelu> leaky_relu;
const Unary<pointwise::Elu> elu;
const Unary<pointwise::Gelu> gelu;
const Unary<pointwise::Sigmoid> sigmoid;
const Unary<pointwise::Silu> silu;
const Unary<pointwise::Tanh> tanh;
const Unary<pointwise::Softplus> softplus;
const Unary<pointwise::Softsign> softsign;
const Unary<pointwise::Exp> exp;
const Unary<pointwise::Log> log;
const Unary<pointwise::Sqrt> sqrt;
const Unary<pointwise::Square> square;
const Unary<pointwise::Abs> abs;
const Unary<pointwise::Neg> neg;

}  // namespace
}  // namespace trireme
