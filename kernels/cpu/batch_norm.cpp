// Batch norm, channels last. Rows of few channels are processed several at a time, as one wide row.
#include <cmath>

#include "kernels/contracts/norm.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/columns.h"
#include "kernels/plans/merged_moments.h"
#include "kernels/plans/norm_checks.h"

namespace trireme {
namespace {

/// x viewed as rows of width channels * copies. The last row may be shorter.
struct Wide {
  Index channels, copies, width, numbers, rows;
  explicit Wide(const Shape& x)
      : channels(row_width(x)),
        copies(repeats(channels)),
        width(channels * copies),
        numbers(x.numel()),
        rows(width ? (numbers + width - 1) / width : 0) {}
  Index length(Index row) const { return std::min(width, numbers - row * width); }
};

/// Mean and m2 of `count` equal-weight numbers per column.
struct BatchNormStats {
  double* mean;
  double* m2;
};

/// Plain code for vectorised(): adds moments (mean, m2) of n rows to those of `before` rows (Chan, Golub &
/// LeVeque 1979).
template <class A>
void merge(BatchNormStats into, const A* mean, const A* m2, Index width, Index before, Index n) {
  double share = static_cast<double>(n) / static_cast<double>(before + n), weight = share * static_cast<double>(before);
#pragma omp simd
  for (Index i = 0; i < width; ++i) {
    double delta = static_cast<double>(mean[i]) - into.mean[i];
    into.mean[i] += delta * share;
    into.m2[i] += static_cast<double>(m2[i]) + delta * delta * weight;
  }
}

/// Plain code for vectorised(): moments of rows [begin, end), few enough to stay in cache, by two passes. The second
/// pass corrects the rounding error of the mean. acc: 3 * width.
template <class A, class T>
void block_moments(A* acc, const T* x, Index width, Index begin, Index end) {
  A *mean = acc, *m2 = acc + width, *rest = acc + 2 * width, n = static_cast<A>(end - begin);
  std::fill_n(acc, 3 * width, A{});
  for (Index r = begin; r < end; ++r) {
    const T* row = x + r * width;
#pragma omp simd
    for (Index i = 0; i < width; ++i) mean[i] += static_cast<A>(row[i]);
  }
#pragma omp simd
  for (Index i = 0; i < width; ++i) mean[i] /= n;
  for (Index r = begin; r < end; ++r) {
    const T* row = x + r * width;
#pragma omp simd
    for (Index i = 0; i < width; ++i) {
      A d = static_cast<A>(row[i]) - mean[i];
      rest[i] += d;
      m2[i] += d * d;
    }
  }
#pragma omp simd
  for (Index i = 0; i < width; ++i) {
    A d = rest[i] / n;
    mean[i] += d;
    m2[i] -= rest[i] * d;
  }
}

/// Moments of whole wide rows into scratch slot 0: mean[width], m2[width].
template <class T>
BatchNormStats wide_moments(const T* x, Index rows, Index width) {
  using A = Accumulator<T>;
  Index parts = column_parts(rows, width);
  double* out = scratch<double>(parts * 2 * width, 0);
  parallel_for(parts, rows * width * 2 / parts, [=](Index from, Index to) {
    A* acc = scratch<A>(3 * width, 3);
    for (Index part = from; part < to; ++part)
      vectorised([=] {
        BatchNormStats sum{out + part * 2 * width, out + part * 2 * width + width};
        std::fill_n(sum.mean, 2 * width, 0.0);
        Index first = rows * part / parts, last = rows * (part + 1) / parts;
        for (Index r = first; r < last; r += column_block) {
          Index end = std::min(r + column_block, last);
          block_moments(acc, x, width, r, end);
          merge(sum, acc, acc + width, width, r - first, end - r);
        }
      });
  });
  BatchNormStats all{out, out + width};
  for (Index part = 1; part < parts; ++part) {
    Index first = rows * part / parts, last = rows * (part + 1) / parts;
    merge(all, out + part * 2 * width, out + part * 2 * width + width, width, first, last - first);
  }
  return all;
}

void moments(View mean, View m2, View x) {
  constexpr auto op = kernel::BatchNormMoments::name;
  check_channels({&mean, &m2}, x.shape, op);
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    Wide w(x.shape);
    if (w.channels == 0) return;
    const T* from = x.as<const T>();
    Index whole = w.numbers / w.width, tail = w.numbers % w.width / w.channels;
    BatchNormStats all = wide_moments(from, whole, w.width);
    for (Index k = 1; whole && k < w.copies; ++k)
      merge(all, all.mean + k * w.channels, all.m2 + k * w.channels, w.channels, whole * k, whole);
    Index rows = whole * w.copies;
    Accumulator<T>* acc = scratch<Accumulator<T>>(3 * w.channels, 3);
    if (tail) {
      block_moments(acc, from + whole * w.width, w.channels, 0, tail);
      merge(all, acc, acc + w.channels, w.channels, rows, tail);
    }
    store(mean, all.mean, false, op);
    store(m2, all.m2, false, op);
  });
}

/// T: type of the statistics; R: of the running ones.
template <class T, class R>
void finish_of(View rstd, View running_mean, View running_var, View mean, View m2, double count, double eps,
               double momentum) {
  const T *mu = mean.as<T>(), *squares = m2.as<T>();
  T* inverse = rstd.as<T>();
  for (Index c = 0; c < rstd.numel(); ++c)
    inverse[c] = static_cast<T>(1 / std::sqrt(static_cast<double>(squares[c]) / count + eps));
  if (!running_mean) return;
  R *kept_mean = running_mean.as<R>(), *kept_var = running_var.as<R>();
  const double unbiased = std::max(count - 1, 1.0);
  for (Index c = 0; c < rstd.numel(); ++c) {
    const double m = kept_mean[c], v = kept_var[c];
    kept_mean[c] = static_cast<R>(m + momentum * (static_cast<double>(mu[c]) - m));
    kept_var[c] = static_cast<R>(v + momentum * (static_cast<double>(squares[c]) / unbiased - v));
  }
}

void finish(View rstd, View running_mean, View running_var, View mean, View m2, double count, double eps,
            double momentum) {
  dispatch_accumulator(rstd.dtype, [&]<class T>(T) {
    dispatch_accumulator(running_mean ? running_mean.dtype : DType::f32, [&]<class R>(R) {
      finish_of<T, R>(rstd, running_mean, running_var, mean, m2, count, eps, momentum);
    });
  });
}

void merge_parts(View mean, View m2, View count, View parts) {
  check_merge(mean, m2, count, parts, kernel::BatchNormMerge::name);
  const Index channels = mean.numel(), ranks = parts.shape[0], step = 1 + 2 * channels;
  const auto* p = parts.as<double>();
  dispatch_accumulator(mean.dtype, [&]<class T>(T) {
    T *to = mean.as<T>(), *squares = m2.as<T>();
    for (Index c = 0; c < channels; ++c) {
      MergedMoments all;
      for (Index r = 0; r < ranks; ++r) all.add(p[r * step], p[r * step + 1 + c], p[r * step + 1 + channels + c]);
      to[c] = static_cast<T>(all.mean);
      squares[c] = static_cast<T>(all.m2);
    }
  });
  double rows = 0;
  for (Index r = 0; r < ranks; ++r) rows += p[r * step];
  *count.as<double>() = rows;
}

/// The norm of one number. Backward finds the sign of the output by the same arithmetic.
template <class A>
A affine(A x, A center, A scale, A shift) {
  return (x - center) * scale + shift;
}

/// What affine() needs, channels repeated to a wide row.
template <class A>
struct Affine {
  const A *center, *scale, *shift;
  /// block: 4 * width, of which the last quarter is left to the caller.
  Affine(A* block, const Wide& w, View mean, View rstd, View gamma, View beta, std::string_view op)
      : center(block), scale(block + w.width), shift(block + 2 * w.width) {
    A *s = block + w.width, *factor = block + 3 * w.width;
    load(block, mean, w.copies, op);
    load(s, rstd, w.copies, op);
    std::fill_n(block + 2 * w.width, w.width, A{});
    if (beta) load(block + 2 * w.width, beta, w.copies, op);
    load(factor, gamma, w.copies, op);
    for (Index i = 0; i < w.width; ++i) s[i] *= factor[i];
  }
};

void apply(View y, View x, View mean, View rstd, View gamma, View beta, View residual, bool relu) {
  constexpr auto op = kernel::BatchNormApply::name;
  check_same(y, x, op);
  if (residual) check_same(y, residual, op);
  check_channels({&mean, &rstd, &gamma, &beta}, x.shape, op);
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Wide w(x.shape);
    const auto [center, scale, shift] = Affine<A>(scratch<A>(4 * w.width, 0), w, mean, rstd, gamma, beta, op);
    const T* add = residual.as<const T>();
    sweep(w.rows, w.width * 2,
          [=, center = center, scale = scale, shift = shift, to = y.as<T>(), from = x.as<const T>()](Index begin,
                                                                                                     Index end) {
            for (Index r = begin; r < end; ++r) {
              Index at = r * w.width, n = w.length(r);
              A low = relu ? A{0} : -std::numeric_limits<A>::infinity();
              auto one = [=](Index i) { return affine(static_cast<A>(from[at + i]), center[i], scale[i], shift[i]); };
              if (add) {
#pragma omp simd
                for (Index i = 0; i < n; ++i) {
                  A v = one(i) + static_cast<A>(add[at + i]);
                  put(to[at + i], v < low ? low : v);
                }
              } else {
#pragma omp simd
                for (Index i = 0; i < n; ++i) {
                  A v = one(i);
                  put(to[at + i], v < low ? low : v);
                }
              }
            }
          });
  });
}

/// Plain code for vectorised(): adds rows [begin, end) to plain[width] and weighted[width].
template <ReluMask mask, class T, class A>
void reduce_rows(A* plain, T* dz_out, const T* dy, const T* x, const T* y, Affine<A> norm, const Wide& w, Index begin,
                 Index end) {
  A* weighted = plain + w.width;
  const A *center = norm.center, *scale = norm.scale, *shift = norm.shift;
  for (Index r = begin; r < end; ++r) {
    const Index at = r * w.width, n = w.length(r);
#pragma omp simd
    for (Index i = 0; i < n; ++i) {
      A dz = static_cast<A>(dy[at + i]);
      const A in = static_cast<A>(x[at + i]);
      if constexpr (mask == ReluMask::found) dz = affine(in, center[i], scale[i], shift[i]) <= A{0} ? A{0} : dz;
      if constexpr (mask == ReluMask::read) {
        dz = static_cast<A>(y[at + i]) <= A{0} ? A{0} : dz;
        put(dz_out[at + i], dz);
      }
      plain[i] += dz;
      weighted[i] += dz * (in - center[i]);
    }
  }
}

void backward_reduce(View dgamma, View dbeta, View dz, View dy, View x, View mean, View rstd, View gamma, View beta,
                     View y) {
  constexpr auto op = kernel::BatchNormBackwardReduce::name;
  check_same(dy, x, op);
  if (y) {
    check_same(dy, y, op);
    check_same(dy, dz, op);
  }
  check_channels({&dgamma, &dbeta, &mean, &rstd, &gamma, &beta}, x.shape, op);
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Wide w(x.shape);
    if (w.channels == 0) return;
    const Affine<A> norm(scratch<A>(4 * w.width, 1), w, mean, rstd, gamma, beta, op);
    T *out = dz.as<T>(), *seed = dy.as<T>(), *from = x.as<T>(), *kept = y.as<T>();
    double* sums = nullptr;
    dispatch_mask(beta, y, [&]<ReluMask mask>(std::integral_constant<ReluMask, mask>) {
      sums = column_sums<A>(2, w.rows, w.width, [=](A* acc, Index begin, Index end) {
        reduce_rows<mask>(acc, out, seed, from, kept, norm, w, begin, end);
      });
    });
    double* weighted = sums + w.width;
    fold(sums, w.channels, w.copies);
    fold(weighted, w.channels, w.copies);
    A* r = scratch<A>(w.channels, 2);
    load(r, rstd, 1, op);
    for (Index c = 0; c < w.channels; ++c) weighted[c] *= r[c];
    store(dbeta, sums, false, op);
    store(dgamma, weighted, false, op);
  });
}

/// Plain code for vectorised(): rows [begin, end) of dx = scale (dz - b - (x - center) c).
template <bool masked, class T, class A>
void backward_rows(T* dx, const T* dy, const T* x, Affine<A> norm, const A* b, const A* c, const Wide& w, Index begin,
                   Index end) {
  const A *center = norm.center, *scale = norm.scale, *shift = norm.shift;
  for (Index r = begin; r < end; ++r) {
    const Index at = r * w.width, n = w.length(r);
#pragma omp simd
    for (Index i = 0; i < n; ++i) {
      A dz = static_cast<A>(dy[at + i]);
      const A in = static_cast<A>(x[at + i]);
      if constexpr (masked) dz = affine(in, center[i], scale[i], shift[i]) <= A{0} ? A{0} : dz;
      put(dx[at + i], scale[i] * (dz - b[i] - (in - center[i]) * c[i]));
    }
  }
}

void backward_apply(View dx, View dz, View x, View mean, View rstd, View gamma, View beta, View sum_dz_xhat,
                    View sum_dz, double count) {
  constexpr auto op = kernel::BatchNormBackwardApply::name;
  check_same(dx, dz, op);
  check_same(dx, x, op);
  check_channels({&mean, &rstd, &gamma, &beta, &sum_dz_xhat, &sum_dz}, x.shape, op);
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Wide w(x.shape);
    const Affine<A> norm(scratch<A>(4 * w.width, 0), w, mean, rstd, gamma, beta, op);
    A *b = scratch<A>(2 * w.width, 1), *c = b + w.width, *r = scratch<A>(w.width, 2);
    std::fill_n(b, 2 * w.width, A{});
    load(r, rstd, w.copies, op);
    if (sum_dz) load(b, sum_dz, w.copies, op);
    if (sum_dz_xhat) load(c, sum_dz_xhat, w.copies, op);
    // xhat = (x - mean) rstd, so its factor is sum_dz_xhat rstd / count.
    for (Index i = 0; count > 0 && i < w.width; ++i) {
      b[i] /= static_cast<A>(count);
      c[i] *= r[i] / static_cast<A>(count);
    }
    T *to = dx.as<T>(), *seed = dz.as<T>(), *from = x.as<T>();
    dispatch_bool(static_cast<bool>(beta), [&]<bool masked>(std::bool_constant<masked>) {
      sweep(w.rows, w.width * 3,
            [=](Index begin, Index end) { backward_rows<masked>(to, seed, from, norm, b, c, w, begin, end); });
    });
  });
}

const Kernel<kernel::BatchNormMoments> moments_cpu{DeviceKind::cpu, moments};
const Kernel<kernel::BatchNormFinish> finish_cpu{DeviceKind::cpu, finish};
const Kernel<kernel::BatchNormMerge> merge_cpu{DeviceKind::cpu, merge_parts};
const Kernel<kernel::BatchNormApply> apply_cpu{DeviceKind::cpu, apply};
const Kernel<kernel::BatchNormBackwardReduce> backward_reduce_cpu{DeviceKind::cpu, backward_reduce};
const Kernel<kernel::BatchNormBackwardApply> backward_apply_cpu{DeviceKind::cpu, backward_apply};

}  // namespace
}  // namespace trireme
