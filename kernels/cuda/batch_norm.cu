// Batch norm, channels last: moments and application. Each kernel reads and writes every element once; what belongs to
// a channel stays in registers (columns.cuh).
#include "kernels/cuda/batch_norm.cuh"
#include "kernels/cuda/moments.h"
#include "kernels/plans/merged_moments.h"

namespace trireme::gpu {
namespace {

/// Mean and sum of squared deviations of two sets of rows (Chan, Golub & LeVeque 1979).
struct MergeMoments {
  template <class V>
  __device__ static V none() {
    return 0;
  }
  template <class V>
  __device__ static void merge(V* into, const V* from, V before, V count) {
    if (count == V(0)) return;
    const V share = count / (before + count), delta = from[0] - into[0];
    into[0] += delta * share;
    into[1] += from[1] + delta * delta * (share * before);
  }
};
/// Mean and sum of squared deviations. A thread sums around its own first number, so that little cancels.
template <class Element>
struct MomentsOf {
  using T = Element;
  using Sum = Accumulator<T>;
  using Part = double;
  using Merge = MergeMoments;
  static constexpr int sets = 2, ahead = 4, resident = 4;
  template <int n>
  struct Fixed {
    Sum shift[n];
  };
  const T* x;

  template <int n>
  __device__ Fixed<n> fixed(Index, Index at) const {
    const Pack<T, n> first = load<n>(x + at);
    Fixed<n> f;
#pragma unroll
    for (int i = 0; i < n; ++i) f.shift[i] = wide(first.v[i]);
    return f;
  }
  template <int n>
  __device__ Pack<T, n> fetch(Index, Index at) const {
    return load<n>(x + at);
  }
  template <int n>
  __device__ void add(Sum (&sums)[2][n], const Fixed<n>& f, const Pack<T, n>& v, Index) const {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const Sum d = wide(v.v[i]) - f.shift[i];
      sums[0][i] += d;
      sums[1][i] += d * d;
    }
  }
  /// Means of threads are kept as distances from the first of their rows: f32 has more digits for these.
  template <int n>
  __device__ void close(Sum (&sums)[2][n], const Fixed<n>& f, int count, Index base) const {
    const Sum share = Sum(1) / static_cast<Sum>(count);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const Sum off = sums[0][i] * share, squares = sums[1][i] - sums[0][i] * off;
      sums[1][i] = squares < Sum(0) ? Sum(0) : squares;
      sums[0][i] = f.shift[i] - wide(x[base + i]) + off;
    }
  }
  __device__ double part(int set, Sum sum, Index base) const {
    return set == 0 ? static_cast<double>(wide(x[base])) + static_cast<double>(sum) : static_cast<double>(sum);
  }
};
template <class A>
struct StoreMoments {
  A *mean, *m2;

  __device__ void operator()(Index c, const double* sums, double) const {
    mean[c] = static_cast<A>(sums[0]);
    m2[c] = static_cast<A>(sums[1]);
  }
};

/// m2 is a difference of two sums that may be large. It is computed in f64 and is at least 0.
struct OfSums {
  float *mean, *m2;
  const float *sums, *squares;
  double rows;

  template <int n>
  __device__ void operator()(Count<n>, Index c) const {
    const double sum = sums[c], center = sum / rows, left = squares[c] - sum * center;
    mean[c] = static_cast<float>(center);
    m2[c] = static_cast<float>(left < 0 ? 0 : left);
  }
};

}  // namespace

void moments(const On& on, const View& mean, const View& m2, const View& x) {
  dispatch_device_float(x.dtype, on.op(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Typed<A> center(on, mean, Typed<A>::written), squares(on, m2, Typed<A>::written);
    reduce_columns(on, 1, row_count(x.shape), row_width(x.shape), aligned(x.data), MomentsOf<T>{x.as<const T>()},
                   StoreMoments<A>{center.data(), squares.data()});
    center.store();
    squares.store();
  });
}

void moments_of_sums(const On& on, const View& mean, const View& m2, const float* sums, const float* squares,
                     Index rows) {
  const Typed<float> center(on, mean, Typed<float>::written), deviations(on, m2, Typed<float>::written);
  each<1>(on, mean.numel(), false, OfSums{center.data(), deviations.data(), sums, squares, static_cast<double>(rows)});
  center.store();
  deviations.store();
}

namespace {

void batch_norm_moments(View mean, View m2, View x) {
  constexpr auto op = kernel::BatchNormMoments::name;
  check_channels({&mean, &m2}, x.shape, op);
  moments(On(x.device, op), mean, m2, x);
}

/// T: type of the statistics; R: of the running ones.
template <class T, class R>
struct Finish {
  T* rstd;
  R *running_mean, *running_var;  ///< may be null
  const T *mean, *m2;
  double count, eps, momentum;

  __device__ static R moved(R kept, double towards, double momentum) {
    const double v = kept;
    return static_cast<R>(v + momentum * (towards - v));
  }
  template <int n>
  __device__ void operator()(Count<n>, Index c) const {
    const double squares = m2[c];
    rstd[c] = static_cast<T>(1 / std::sqrt(squares / count + eps));
    if (!running_mean) return;
    running_mean[c] = moved(running_mean[c], mean[c], momentum);
    running_var[c] = moved(running_var[c], squares / (count > 2 ? count - 1 : 1.0), momentum);
  }
};

void finish(View rstd, View running_mean, View running_var, View mean, View m2, double count, double eps,
            double momentum) {
  const On on(rstd.device, kernel::BatchNormFinish::name);
  dispatch_accumulator(rstd.dtype, [&]<class T>(T) {
    dispatch_accumulator(running_mean ? running_mean.dtype : DType::f32, [&]<class R>(R) {
      each<1>(on, rstd.numel(), false,
              Finish<T, R>{rstd.as<T>(), running_mean.as<R>(), running_var.as<R>(), mean.as<const T>(),
                           m2.as<const T>(), count, eps, momentum});
    });
  });
}

template <class T>
struct Merge {
  T *mean, *m2;
  double* count;
  const double* parts;
  Index ranks, channels;
  template <int n>
  __device__ void operator()(Count<n>, Index c) const {
    const Index step = 1 + 2 * channels;
    MergedMoments all;
    double rows = 0;
    for (Index r = 0; r < ranks; ++r) {
      const double* p = parts + r * step;
      all.add(p[0], p[1 + c], p[1 + channels + c]);
      rows += p[0];
    }
    mean[c] = static_cast<T>(all.mean);
    m2[c] = static_cast<T>(all.m2);
    if (c == 0) *count = rows;
  }
};

void merge(View mean, View m2, View count, View parts) {
  constexpr auto op = kernel::BatchNormMerge::name;
  check_merge(mean, m2, count, parts, op);
  const On on(mean.device, op);
  dispatch_accumulator(mean.dtype, [&]<class T>(T) {
    each<1>(
        on, mean.numel(), false,
        Merge<T>{mean.as<T>(), m2.as<T>(), count.as<double>(), parts.as<const double>(), parts.shape[0], mean.numel()});
  });
}

template <class Element, bool residual>
struct Apply {
  using T = Element;
  using A = Accumulator<T>;
  static constexpr int ahead = residual ? 2 : 4, resident = 3;
  template <int n>
  struct Fetched {
    Pack<T, n> x, add;
  };
  T* y;
  const T *x, *add;
  Weights<A> weights;
  A low;  ///< 0 for a ReLU, else minus infinity

  template <int n>
  __device__ Affine<A, n> fixed(Index column, Index) const {
    return {weights, column};
  }
  template <int n>
  __device__ Fetched<n> fetch(Index, Index at) const {
    Fetched<n> f;
    f.x = load<n>(x + at);
    if constexpr (residual) f.add = load<n>(add + at);
    return f;
  }
  template <int n>
  __device__ void put(const Affine<A, n>& norm, const Fetched<n>& f, Index at) const {
    Pack<T, n> out;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      A v = norm(wide(f.x.v[i]), i);
      if constexpr (residual) v += wide(f.add.v[i]);
      out.v[i] = rounded<T>(v < low ? low : v);
    }
    store(y + at, out);
  }
};

void apply(View y, View x, View mean, View rstd, View gamma, View beta, View residual, bool relu) {
  constexpr auto op = kernel::BatchNormApply::name;
  check_same(y, x, op);
  if (residual) check_same(y, residual, op);
  check_channels({&mean, &rstd, &gamma, &beta}, x.shape, op);
  const On on(y.device, op);
  const bool vector = aligned(y.data, x.data, residual.data);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const TypedWeights<A> weights{{on, mean}, {on, rstd}, {on, gamma}, {on, beta}};
    const A low = relu ? A(0) : -std::numeric_limits<A>::infinity();
    dispatch_bool(static_cast<bool>(residual), [&]<bool add>(std::bool_constant<add>) {
      walk_columns(on, row_count(x.shape), row_width(x.shape), vector,
                   Apply<T, add>{y.as<T>(), x.as<const T>(), residual.as<const T>(), weights, low});
    });
  });
}

const Kernel<kernel::BatchNormMoments> moments_cuda{DeviceKind::cuda, batch_norm_moments};
const Kernel<kernel::BatchNormFinish> finish_cuda{DeviceKind::cuda, finish};
const Kernel<kernel::BatchNormMerge> merge_cuda{DeviceKind::cuda, merge};
const Kernel<kernel::BatchNormApply> apply_cuda{DeviceKind::cuda, apply};

}  // namespace
}  // namespace trireme::gpu
