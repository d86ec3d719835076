// A bias along rows and sums over rows: rows.h.
#include "kernels/cuda/rows.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/plans/dispatch.h"

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

/// to[i] (+)= x[i].
template <class S, class T, bool accumulate>
struct AddInto {
  S* to;
  const T* x;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    using A = Accumulator<S>;
    const Pack<T, n> in = load<n>(x + i);
    Pack<S, n> out;
    if constexpr (accumulate) out = load<n>(to + i);
    for (int j = 0; j < n; ++j) {
      const A v = static_cast<A>(wide(in.v[j]));
      out.v[j] = rounded<S>(accumulate ? wide(out.v[j]) + v : v);
    }
    store(to + i, out);
  }
};

/// A sum of a column goes to a vector of any of these types.
struct AddColumn {
  void* to;
  DType dtype;
  bool accumulate;

  __device__ void operator()(Index column, const double* sum, double) const {
    switch (dtype) {
      case DType::f64: return put(static_cast<double*>(to) + column, *sum);
      case DType::bf16: return put(static_cast<bf16*>(to) + column, *sum);
      case DType::f16: return put(static_cast<f16*>(to) + column, *sum);
      default: return put(static_cast<float*>(to) + column, *sum);
    }
  }
  template <class S>
  __device__ void put(S* at, double sum) const {
    if (accumulate) sum += static_cast<double>(wide(*at));
    *at = rounded<S>(static_cast<Accumulator<S>>(sum));
  }
};

template <class T>
void add_columns(const On& on, const View& sum, const T* x, Index rows, bool accumulate) {
  check(is_float(sum.dtype), on.op(), "wants a floating type (f32, f64, bf16, f16), got {}", name_of(sum.dtype));
  reduce_columns(on, 1, rows, sum.numel(), aligned(x), ColumnSum<T>{{}, x}, AddColumn{sum.data, sum.dtype, accumulate});
}

template <class T>
void sum_rows_of(const On& on, const View& sum, const View& x, bool accumulate) {
  const Index width = sum.numel(), rows = row_count(x.shape);
  if (rows == 1)
    return dispatch_device_float(sum.dtype, on.op(), [&](auto t) {
      using S = decltype(t);
      constexpr int n = std::min(pack<S>, pack<T>);
      const bool vector = aligned(sum.data, x.data);
      dispatch_bool(accumulate, [&]<bool add>(std::bool_constant<add>) {
        each<n>(on, width, vector, AddInto<S, T, add>{sum.as<S>(), x.as<const T>()});
      });
    });
  add_columns(on, sum, x.as<const T>(), rows, accumulate);
}

}  // namespace

void conv_tail(const On& on, const View& y, const View& x, const View& bias, const View& residual, bool relu) {
  dispatch_device_float(y.dtype, on.op(), [&](auto t) {
    using T = decltype(t);
    if (!bias) return tail_of<T, T>(on, y, x, bias, residual, relu);
    dispatch_device_float(bias.dtype, on.op(), [&](auto b) {
      using B = decltype(b);
      if constexpr (std::is_same_v<T, B> || std::is_same_v<T, float> || std::is_same_v<B, float>)
        tail_of<T, B>(on, y, x, bias, residual, relu);
      else
        fail(on.op(), "a bias of {} beside {} is not expected", bias.dtype, y.dtype);
    });
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
  dispatch_device_float(x.dtype, on.op(), [&](auto t) { sum_rows_of<decltype(t)>(on, sum, x, accumulate); });
}

}  // namespace trireme::gpu
