// Batch norm backward: the sums over rows, then the gradient of x.
#include "kernels/cuda/batch_norm.cuh"

namespace trireme::gpu {
namespace {

/// Sums of dz and of dz (x - mean). read: whether the mask of a ReLU is read from y.
template <class Element, bool read>
struct Backward : PlainSums<Element, 2> {
  using T = Element;
  using Sum = Accumulator<T>;
  static constexpr int ahead = 2, resident = 3;
  template <int n>
  struct Fetched {
    Pack<T, n> dy, x, y;
  };
  T* dz;  ///< where the mask is read: may be dy
  const T *dy, *x, *y;
  Weights<Sum> weights;
  bool masked;  ///< by a ReLU whose mask is recomputed

  template <int n>
  __device__ Affine<Sum, n> fixed(Index column, Index) const {
    return {weights, column};
  }
  template <int n>
  __device__ Fetched<n> fetch(Index, Index at) const {
    Fetched<n> f;
    f.dy = load<n>(dy + at);
    f.x = load<n>(x + at);
    if constexpr (read) f.y = load<n>(y + at);
    return f;
  }
  template <int n>
  __device__ void add(Sum (&sums)[2][n], const Affine<Sum, n>& norm, Fetched<n> f, Index at) const {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      Sum g = wide(f.dy.v[i]);
      const Sum in = wide(f.x.v[i]);
      if (masked) g = norm(in, i) <= Sum(0) ? Sum(0) : g;
      if constexpr (read) {
        g = wide(f.y.v[i]) <= Sum(0) ? Sum(0) : g;
        f.dy.v[i] = rounded<T>(g);
      }
      sums[0][i] += g;
      sums[1][i] += g * (in - norm.center[i]);
    }
    if constexpr (read) store(dz + at, f.dy);
  }
};
/// xhat = (x - mean) rstd: rstd comes in here.
template <class A>
struct StoreBackward {
  A *dgamma, *dbeta;
  const A* rstd;

  __device__ void operator()(Index c, const double* sums, double) const {
    dbeta[c] = static_cast<A>(sums[0]);
    dgamma[c] = static_cast<A>(sums[1] * static_cast<double>(rstd[c]));
  }
};

void backward_reduce(View dgamma, View dbeta, View dz, View dy, View x, View mean, View rstd, View gamma, View beta,
                     View y) {
  constexpr auto op = kernel::BatchNormBackwardReduce::name;
  check_same(dy, x, op);
  if (y) {
    check_same(dy, y, op);
    check_same(dy, dz, op);
  }
  check_channels({&dgamma, &dbeta, &mean, &rstd, &gamma, &beta}, x.shape, op);
  const On on(x.device, op);
  const bool vector = aligned(dy.data, x.data, y.data, y ? dz.data : nullptr);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const TypedWeights<A> weights{{on, mean}, {on, rstd}, {on, gamma}, {on, beta}};
    const Typed<A> weighted(on, dgamma, Typed<A>::written), plain(on, dbeta, Typed<A>::written);
    const StoreBackward<A> out{weighted.data(), plain.data(), weights.rstd.data()};
    dispatch_bool(static_cast<bool>(y), [&]<bool read>(std::bool_constant<read>) {
      const bool masked = beta && !read;
      Backward<T, read> p{{}, dz.as<T>(), dy.as<const T>(), x.as<const T>(), y.as<const T>(), weights, masked};
      reduce_columns(on, 1, row_count(x.shape), row_width(x.shape), vector, p, out);
    });
    weighted.store();
    plain.store();
  });
}

/// dx = scale (dz - b - (x - center) c).
template <class Element>
struct BackwardApply {
  using T = Element;
  using A = Accumulator<T>;
  static constexpr int ahead = 2, resident = 3;
  template <int n>
  struct Fixed {
    Affine<A, n> norm;
    A b[n], c[n];
  };
  template <int n>
  struct Fetched {
    Pack<T, n> dz, x;
  };
  T* dx;  ///< may be dz
  const T *dz, *x;
  Weights<A> weights;
  const A *sum_dz_xhat, *sum_dz;  ///< may be null
  A count;
  bool masked;  ///< by a ReLU

  template <int n>
  __device__ Fixed<n> fixed(Index column, Index) const {
    Fixed<n> f{{weights, column}, {}, {}};
#pragma unroll
    for (int i = 0; i < n; ++i) {
      f.b[i] = sum_dz ? sum_dz[column + i] : A(0);
      f.c[i] = sum_dz_xhat ? sum_dz_xhat[column + i] : A(0);
      // xhat = (x - mean) rstd, so its factor is sum_dz_xhat rstd / count.
      if (count > A(0)) {
        f.b[i] /= count;
        f.c[i] *= weights.rstd[column + i] / count;
      }
    }
    return f;
  }
  template <int n>
  __device__ Fetched<n> fetch(Index, Index at) const {
    return {load<n>(dz + at), load<n>(x + at)};
  }
  template <int n>
  __device__ void put(const Fixed<n>& fixed, const Fetched<n>& f, Index at) const {
    Pack<T, n> out;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const A in = wide(f.x.v[i]);
      A g = wide(f.dz.v[i]);
      if (masked) g = fixed.norm(in, i) <= A(0) ? A(0) : g;
      out.v[i] = rounded<T>(fixed.norm.scale[i] * (g - fixed.b[i] - (in - fixed.norm.center[i]) * fixed.c[i]));
    }
    store(dx + at, out);
  }
};

void backward_apply(View dx, View dz, View x, View mean, View rstd, View gamma, View beta, View sum_dz_xhat,
                    View sum_dz, double count) {
  constexpr auto op = kernel::BatchNormBackwardApply::name;
  check_same(dx, dz, op);
  check_same(dx, x, op);
  check_channels({&mean, &rstd, &gamma, &beta, &sum_dz_xhat, &sum_dz}, x.shape, op);
  const On on(dx.device, op);
  const bool vector = aligned(dx.data, dz.data, x.data);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const TypedWeights<A> weights{{on, mean}, {on, rstd}, {on, gamma}, {on, beta}};
    const Typed<A> weighted(on, sum_dz_xhat), plain(on, sum_dz);
    walk_columns(on, row_count(x.shape), row_width(x.shape), vector,
                 BackwardApply<T>{dx.as<T>(), dz.as<const T>(), x.as<const T>(), weights, weighted.data(), plain.data(),
                                  static_cast<A>(count), static_cast<bool>(beta)});
  });
}

const Kernel<kernel::BatchNormBackwardReduce> backward_reduce_cuda{DeviceKind::cuda, backward_reduce};
const Kernel<kernel::BatchNormBackwardApply> backward_apply_cuda{DeviceKind::cuda, backward_apply};
}  // namespace
}  // namespace trireme::gpu
