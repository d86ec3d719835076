// Layer norm and RMS norm over the last axis.
#include <algorithm>
#include <cmath>

#include "kernels/contracts/norm.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/columns.h"
#include "kernels/plans/norm_checks.h"

namespace trireme {
namespace {

/// gamma or beta as numbers of type A, or null.
template <class A>
const A* weights(const View& v, int slot, std::string_view op) {
  if (!v) return nullptr;
  A* out = scratch<A>(v.numel(), slot);
  load(out, v, 1, op);
  return out;
}

/// Numbers of a row that are summed in the accumulator's type; Sum, the type of sums of stretches, is f64 for longer
/// rows.
constexpr Index stretch = 1024;

/// Plain code for vectorised(): mean and standard deviation's inverse of a row, two passes.
template <class Sum, class T, class A = Accumulator<T>>
std::pair<A, A> statistics(const T* x, Index n, double eps) {
  const auto count = static_cast<Sum>(n);
  Sum total{}, total_squares{}, total_rest{};
  for (Index k = 0; k < n; k += stretch) {
    A sum{};
#pragma omp simd reduction(+ : sum)
    for (Index i = k; i < std::min(k + stretch, n); ++i) sum += static_cast<A>(x[i]);
    total += sum;
  }
  const A mean = static_cast<A>(total / count);
  for (Index k = 0; k < n; k += stretch) {
    A squares{}, rest{};
#pragma omp simd reduction(+ : squares, rest)
    for (Index i = k; i < std::min(k + stretch, n); ++i) {
      A d = static_cast<A>(x[i]) - mean;
      rest += d;
      squares += d * d;
    }
    total_squares += squares;
    total_rest += rest;
  }
  const Sum shift = total_rest / count, variance = (total_squares - total_rest * shift) / count;
  return {static_cast<A>(mean + shift), A{1} / std::sqrt(static_cast<A>(variance + static_cast<Sum>(eps)))};
}

/// The same for RMS norm, where the mean is taken as 0.
template <class Sum, class T, class A = Accumulator<T>>
std::pair<A, A> root_mean_square(const T* x, Index n, double eps) {
  Sum total{};
  for (Index k = 0; k < n; k += stretch) {
    A squares{};
#pragma omp simd reduction(+ : squares)
    for (Index i = k; i < std::min(k + stretch, n); ++i) squares += static_cast<A>(x[i]) * static_cast<A>(x[i]);
    total += squares;
  }
  return {A{}, A{1} / std::sqrt(static_cast<A>(total / static_cast<Sum>(n) + static_cast<Sum>(eps)))};
}

void layer_norm(View y, View mean, View rstd, View x, View gamma, View beta, double eps, bool centered) {
  constexpr auto op = kernel::LayerNorm::name;
  check_same(y, x, op);
  check_rows({&mean, &rstd}, {&gamma, &beta}, x, op);
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Index n = row_width(x.shape);
    const A *scale = weights<A>(gamma, 0, op), *shift = weights<A>(beta, 1, op);
    A *means = mean.as<A>(), *rstds = rstd.as<A>();
    sweep(row_count(x.shape), n * 4, [=, to = y.as<T>(), from = x.as<const T>()](Index begin, Index end) {
      for (Index r = begin; r < end; ++r) {
        const T* in = from + r * n;
        T* out = to + r * n;
        auto [m, s] = n <= stretch ? (centered ? statistics<A>(in, n, eps) : root_mean_square<A>(in, n, eps))
                                   : (centered ? statistics<double>(in, n, eps) : root_mean_square<double>(in, n, eps));
        means[r] = m;
        rstds[r] = s;
        A center = m, factor = s;
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
          A v = (static_cast<A>(in[i]) - center) * factor;
          if (scale) v *= scale[i];
          if (shift) v += shift[i];
          put(out[i], v);
        }
      }
    });
  });
}

/// dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma.
void backward_input(View dx, View dy, View x, View mean, View rstd, View gamma, bool centered) {
  constexpr auto op = kernel::LayerNormBackwardInput::name;
  check_same(dx, dy, op);
  check_same(dx, x, op);
  check_rows({&mean, &rstd}, {&gamma}, x, op);
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Index n = row_width(x.shape);
    const A* scale = weights<A>(gamma, 0, op);
    const A *means = mean.as<A>(), *rstds = rstd.as<A>();
    sweep(row_count(x.shape), n * 6,
          [=, to = dx.as<T>(), seed = dy.as<const T>(), from = x.as<const T>()](Index begin, Index end) {
            for (Index r = begin; r < end; ++r) {
              const T *g = seed + r * n, *in = from + r * n;
              const A m = means[r], s = rstds[r];
              double all_plain = 0, all_weighted = 0;
              for (Index k = 0; k < n; k += stretch) {
                A part{}, weighted_part{};
#pragma omp simd reduction(+ : part, weighted_part)
                for (Index i = k; i < std::min(k + stretch, n); ++i) {
                  A v = static_cast<A>(g[i]) * (scale ? scale[i] : A{1});
                  part += v;
                  weighted_part += v * (static_cast<A>(in[i]) - m);
                }
                all_plain += part;
                all_weighted += weighted_part;
              }
              const A plain = centered ? static_cast<A>(all_plain / static_cast<double>(n)) : A{};
              const A weighted = static_cast<A>(all_weighted * s * s / static_cast<double>(n));
#pragma omp simd
              for (Index i = 0; i < n; ++i) {
                A v = static_cast<A>(g[i]) * (scale ? scale[i] : A{1});
                put(to[r * n + i], s * (v - plain - (static_cast<A>(in[i]) - m) * weighted));
              }
            }
          });
  });
}

void backward_weight(View dgamma, View dbeta, View dy, View x, View mean, View rstd, bool accumulate) {
  constexpr auto op = kernel::LayerNormBackwardWeight::name;
  check_same(dy, x, op);
  check_rows({&mean, &rstd}, {&dgamma, &dbeta}, x, op);
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Index n = row_width(x.shape);
    if (n == 0) return;
    const T *seed = dy.as<const T>(), *from = x.as<const T>();
    const A *means = mean.as<A>(), *rstds = rstd.as<A>();
    double* sums = column_sums<A>(2, row_count(x.shape), n, [=](A* acc, Index begin, Index end) {
      A* weighted = acc + n;
      for (Index r = begin; r < end; ++r) {
        A m = means[r], s = rstds[r];
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
          A g = static_cast<A>(seed[r * n + i]);
          acc[i] += g;
          weighted[i] += g * (static_cast<A>(from[r * n + i]) - m) * s;
        }
      }
    });
    if (dbeta) store(dbeta, sums, accumulate, op);
    if (dgamma) store(dgamma, sums + n, accumulate, op);
  });
}

const Kernel<kernel::LayerNorm> layer_norm_cpu{DeviceKind::cpu, layer_norm};
const Kernel<kernel::LayerNormBackwardInput> backward_input_cpu{DeviceKind::cpu, backward_input};
const Kernel<kernel::LayerNormBackwardWeight> backward_weight_cpu{DeviceKind::cpu, backward_weight};

}  // namespace
}  // namespace trireme
