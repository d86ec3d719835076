#include "kernels/cuda/conv_tail.h"

#include "kernels/cuda/launch.cuh"

namespace trireme::gpu {
namespace {

/// A pack lies within one row.
template <class T, class B>
struct Tail {
  T* y;
  const T* x;
  const B* bias;      ///< may be null
  const T* residual;  ///< may be null
  Index width;
  bool relu;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    using A = Accumulator<T>;
    Pack<T, n> p = load<n>(x + i), r{};
    if (residual) r = load<n>(residual + i);
    const Index column = i % width;
    for (int j = 0; j < n; ++j) {
      A v = wide(p.v[j]);
      if (bias) v += static_cast<A>(wide(bias[column + j]));
      if (residual) v += wide(r.v[j]);
      p.v[j] = rounded<T>(relu && v < A(0) ? A(0) : v);
    }
    store(y + i, p);
  }
};

template <class T, class B>
void tail_of(const On& on, const View& y, const View& x, const View& bias, const View& residual, bool relu) {
  const Index width = row_width(y.shape);
  const bool vector = width % pack<T> == 0 && aligned(y.data, x.data, residual.data);
  each<pack<T>>(on, y.numel(), vector,
                Tail<T, B>{y.as<T>(), x.as<const T>(), bias.as<const B>(), residual.as<const T>(), width, relu});
}

}  // namespace

void conv_tail(const On& on, const View& y, const View& x, const View& bias, const View& residual, bool relu) {
  dispatch_device_float(y.dtype, on.op(), [&](auto t) {
    using T = decltype(t);
    if (bias && bias.dtype == DType::f32)
      tail_of<T, float>(on, y, x, bias, residual, relu);
    else
      tail_of<T, T>(on, y, x, bias, residual, relu);
  });
}

}  // namespace trireme::gpu
