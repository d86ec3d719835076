// Layer norm and RMS norm over the last axis: a team of threads to a row, and sums down the columns for its weights.
#include <cmath>

#include "kernels/contracts/norm.h"
#include "kernels/core/kernel.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/team.cuh"
#include "kernels/cuda/typed.h"
#include "kernels/plans/norm_checks.h"

namespace trireme::gpu {
namespace {

template <class T>
struct LayerNorm {
  using A = Accumulator<T>;
  T* y;  ///< may be x
  A *mean, *rstd;
  const T* x;
  const A *gamma, *beta;  ///< may be null
  Index width;
  A eps;
  bool centered;

  /// Two passes; what rounding left of the mean is found in the second and put right.
  template <int n>
  __device__ void operator()(const Team& team, Count<n>, Index r) const {
    const Row<T, n> row(team, x + r * width, width);
    const auto count = static_cast<A>(width);
    A sum = 0, squares = 0, rest = 0;
    row.each([&](Index, const Pack<T, n>& p) {
#pragma unroll
      for (int j = 0; j < n; ++j) sum += wide(p.v[j]);
    });
    const A about = centered ? team.sum(sum) / count : A(0);
    row.each([&](Index, const Pack<T, n>& p) {
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const A d = wide(p.v[j]) - about;
        rest += d;
        squares += d * d;
      }
    });
    rest = team.sum(rest);
    squares = team.sum(squares);
    const A shift = centered ? rest / count : A(0), variance = (squares - rest * shift) / count;
    const A center = about + shift, factor = A(1) / std::sqrt(variance + eps);
    if (team.rank() == 0) {
      mean[r] = center;
      rstd[r] = factor;
    }
    row.each([&, to = y + r * width](Index i, const Pack<T, n>& p) {
      Pack<T, n> out;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        A v = (wide(p.v[j]) - center) * factor;
        if (gamma) v *= gamma[i + j];
        if (beta) v += beta[i + j];
        out.v[j] = rounded<T>(v);
      }
      store(to + i, out);
    });
  }
};

void layer_norm(View y, View mean, View rstd, View x, View gamma, View beta, double eps, bool centered) {
  constexpr auto op = kernel::LayerNorm::name;
  check_same(y, x, op);
  check_rows({&mean, &rstd}, {&gamma, &beta}, x, op);
  const On on(x.device, op);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Typed<A> scale(on, gamma), shift(on, beta);
    const Index width = row_width(x.shape);
    each_row<T>(on, row_count(x.shape), width, aligned(y.data, x.data),
                LayerNorm<T>{y.as<T>(), mean.as<A>(), rstd.as<A>(), x.as<const T>(), scale.data(), shift.data(), width,
                             static_cast<A>(eps), centered});
  });
}

/// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma.
template <class T>
struct BackwardInput {
  using A = Accumulator<T>;
  T* dx;  ///< may be dy or x
  const T *dy, *x;
  const A *mean, *rstd, *gamma;  ///< gamma may be null
  Index width;
  bool centered;

  template <int n>
  __device__ void operator()(const Team& team, Count<n>, Index r) const {
    const Row<T, n> seed(team, dy + r * width, width), in(team, x + r * width, width);
    const A center = mean[r], factor = rstd[r], count = static_cast<A>(width);
    A plain = 0, weighted = 0;
    seed.each_with(in, [&](Index i, const Pack<T, n>& g, const Pack<T, n>& p) {
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const A v = gamma ? wide(g.v[j]) * gamma[i + j] : wide(g.v[j]);
        plain += v;
        weighted += v * (wide(p.v[j]) - center);
      }
    });
    plain = centered ? team.sum(plain) / count : A(0);
    weighted = team.sum(weighted) * (factor * factor / count);
    seed.each_with(in, [&, to = dx + r * width](Index i, const Pack<T, n>& g, const Pack<T, n>& p) {
      Pack<T, n> out;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const A v = gamma ? wide(g.v[j]) * gamma[i + j] : wide(g.v[j]);
        out.v[j] = rounded<T>(factor * (v - plain - (wide(p.v[j]) - center) * weighted));
      }
      store(to + i, out);
    });
  }
};

void backward_input(View dx, View dy, View x, View mean, View rstd, View gamma, bool centered) {
  constexpr auto op = kernel::LayerNormBackwardInput::name;
  check_same(dx, dy, op);
  check_same(dx, x, op);
  check_rows({&mean, &rstd}, {&gamma}, x, op);
  const On on(dx.device, op);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Typed<A> scale(on, gamma);
    const Index width = row_width(x.shape);
    each_row<T>(on, row_count(x.shape), width, aligned(dx.data, dy.data, x.data),
                BackwardInput<T>{dx.as<T>(), dy.as<const T>(), x.as<const T>(), mean.as<const A>(), rstd.as<const A>(),
                                 scale.data(), width, centered});
  });
}

/// Sums of dy and of dy xhat.
template <class Element>
struct WeightSums : PlainSums<Element, 2> {
  using T = Element;
  using Sum = Accumulator<T>;
  static constexpr int ahead = 2, resident = 3;
  template <int n>
  struct Fetched {
    Pack<T, n> dy, x;
    Sum mean, rstd;
  };
  const T *dy, *x;
  const Sum *mean, *rstd;

  template <int n>
  __device__ Fetched<n> fetch(Index row, Index at) const {
    return {load<n>(dy + at), load<n>(x + at), mean[row], rstd[row]};
  }
  template <int n>
  __device__ void add(Sum (&sums)[2][n], typename PlainSums<T, 2>::Nothing, const Fetched<n>& f, Index) const {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const Sum g = wide(f.dy.v[i]);
      sums[0][i] += g;
      sums[1][i] += g * (wide(f.x.v[i]) - f.mean) * f.rstd;
    }
  }
};
template <class A>
struct StoreWeights {
  A *dgamma, *dbeta;  ///< may be null
  bool accumulate;

  __device__ void operator()(Index c, const double* sums, double) const {
    if (dbeta) put(dbeta[c], sums[0]);
    if (dgamma) put(dgamma[c], sums[1]);
  }

 private:
  __device__ void put(A& to, double v) const { to = static_cast<A>(accumulate ? static_cast<double>(to) + v : v); }
};

void backward_weight(View dgamma, View dbeta, View dy, View x, View mean, View rstd, bool accumulate) {
  constexpr auto op = kernel::LayerNormBackwardWeight::name;
  check_same(dy, x, op);
  check_rows({&mean, &rstd}, {&dgamma, &dbeta}, x, op);
  const On on(x.device, op);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const auto use = accumulate ? Typed<A>::read : Typed<A>::written;
    const Typed<A> weighted(on, dgamma, use), plain(on, dbeta, use);
    reduce_columns(on, 1, row_count(x.shape), row_width(x.shape), aligned(dy.data, x.data),
                   WeightSums<T>{{}, dy.as<const T>(), x.as<const T>(), mean.as<const A>(), rstd.as<const A>()},
                   StoreWeights<A>{weighted.data(), plain.data(), accumulate});
    weighted.store();
    plain.store();
  });
}

const Kernel<kernel::LayerNorm> layer_norm_cuda{DeviceKind::cuda, layer_norm};
const Kernel<kernel::LayerNormBackwardInput> backward_input_cuda{DeviceKind::cuda, backward_input};
const Kernel<kernel::LayerNormBackwardWeight> backward_weight_cuda{DeviceKind::cuda, backward_weight};

}  // namespace
}  // namespace trireme::gpu
