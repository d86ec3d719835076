// A bias along rows and sums over rows: rows.h.
#include "kernels/cuda/rows.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/plans/dispatch.h"

namespace trireme::gpu {
namespace {

/// A pack lies within one row.
template <class T>
struct Tail {
  T* y;
  const T* x;
  const void* bias;  ///< may be null
  DType bias_type;
  const T* residual;  ///< may be null
  Index width;
  bool relu;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    using A = Accumulator<T>;
    Pack<T, n> p = load<n>(x + i), r{};
    if (residual) r = load<n>(residual + i);
    A shift[n] = {};
    if (bias)
      with_float(bias_type, [&, column = i % width](auto b) {
        const auto* from = static_cast<const decltype(b)*>(bias) + column;
        for (int j = 0; j < n; ++j) shift[j] = static_cast<A>(wide(from[j]));
      });
    for (int j = 0; j < n; ++j) {
      A v = wide(p.v[j]);
      if (bias) v += shift[j];
      if (residual) v += wide(r.v[j]);
      p.v[j] = rounded<T>(relu && v < A(0) ? A(0) : v);
    }
    store(y + i, p);
  }
};

/// to[i] (+)= x[i].
template <class A>
struct AddInto {
  void* to;
  const void* x;
  DType to_type, x_type;
  bool accumulate;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const auto v = number<A>(x, x_type, i);
    put_number(to, to_type, i, accumulate ? number<A>(to, to_type, i) + v : v);
  }
};

/// A sum of a column goes to a vector of any of these types.
struct StoreColumn {
  void* to;
  DType dtype;
  bool accumulate;

  __device__ void operator()(Index column, const double* sum, double) const {
    put_number(to, dtype, column, accumulate ? *sum + number<double>(to, dtype, column) : *sum);
  }
};

template <class T>
void add_columns(const On& on, const View& sum, const T* x, Index rows, bool accumulate) {
  check(is_float(sum.dtype), on.op(), "got {}, expected a floating type (f32, f64, bf16, f16)", name_of(sum.dtype));
  reduce_columns(on, 1, rows, sum.numel(), aligned(x), ColumnSum<T>{{}, x},
                 StoreColumn{sum.data, sum.dtype, accumulate});
}

}  // namespace

void conv_tail(const On& on, const View& y, const View& x, const View& bias, const View& residual, bool relu) {
  dispatch_device_float(y.dtype, on.op(), [&](auto t) {
    using T = decltype(t);
    const Index width = row_width(y.shape);
    const bool vector = width % pack<T> == 0 && aligned(y.data, x.data, residual.data);
    each<pack<T>>(on, y.numel(), vector,
                  Tail<T>{y.as<T>(), x.as<const T>(), bias.data, bias.dtype, residual.as<const T>(), width, relu});
  });
}

void add_bias(const On& on, const View& y, const View& bias, bool relu) {
  if (y.numel() > 0 && (bias || relu)) conv_tail(on, y, y, bias, View{}, relu);
}

void sum_parts(const On& on, const View& sum, const double* parts, Index strips, bool accumulate) {
  add_columns(on, sum, parts, strips, accumulate);
}

void sum_rows(const On& on, const View& sum, const View& x, bool accumulate) {
  check_sum_rows(sum, x, on.op());
  if (sum.numel() == 0) return;
  if (const Index rows = row_count(x.shape); rows != 1)
    return dispatch_device_float(x.dtype, on.op(),
                                 [&](auto t) { add_columns(on, sum, x.as<const decltype(t)>(), rows, accumulate); });
  dispatch_accumulator(sum.dtype, [&](auto a) {
    each<1>(on, sum.numel(), false, AddInto<decltype(a)>{sum.data, x.data, sum.dtype, x.dtype, accumulate});
  });
}

}  // namespace trireme::gpu
