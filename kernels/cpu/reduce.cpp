// Reduce, ArgMax and SumSquares. Sums end in f64; how they are divided depends only on the shape, not on threads.
#include <cmath>
#include <limits>

#include "kernels/core/kernel.h"
#include "kernels/cpu/columns.h"
#include "kernels/plans/reduce_layout.h"

namespace trireme {
namespace {

/// Plain code for vectorised(): the sum of a row, in the element's type over short stretches.
template <class T>
double row_sum(const T* x, Index n) {
  double total = 0;
  for (Index k = 0; k < n; k += 1024) {
    Accumulator<T> sum{};
#pragma omp simd reduction(+ : sum)
    for (Index i = k; i < std::min(k + 1024, n); ++i) sum += static_cast<Accumulator<T>>(x[i]);
    total += sum;
  }
  return total;
}
template <class T>
double row_squares(const T* x, Index n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

/// The sum over [0, n) of f(begin, count), by parts.
template <class F>
double total(Index n, F f) {
  constexpr Index most = 64;
  double part[most];
  Index parts = std::clamp<Index>(n / 16384, 1, most);
  parallel_for(parts, n / parts, [&part, f, n, parts](Index from, Index to) {
    vectorised([=, out = part] {
      for (Index k = from; k < to; ++k) out[k] = f(n * k / parts, n * (k + 1) / parts - n * k / parts);
    });
  });
  double sum = 0;
  for (Index k = 0; k < parts; ++k) sum += part[k];
  return sum;
}

template <class T>
void sum_regular(T* y, const T* x, const ReduceLayout& l) {
  auto round = [scale = l.scale](double sum) { return static_cast<T>(static_cast<Accumulator<T>>(sum * scale)); };
  if (l.inner == 1 && l.outer < 64) {
    for (Index k = 0; k < l.outer; ++k)
      y[k] = round(total(l.reduced, [row = x + k * l.reduced](Index at, Index n) { return row_sum(row + at, n); }));
  } else if (l.inner == 1) {
    sweep(l.outer, l.reduced, [=](Index begin, Index end) {
      for (Index k = begin; k < end; ++k) y[k] = round(row_sum(x + k * l.reduced, l.reduced));
    });
  } else {
    Index copies = repeats(l.inner), wide = l.inner * copies, n = l.reduced * l.inner;
    auto one = [=](Index k) {
      auto sums = column_sums<Accumulator<T>>(1, (n + wide - 1) / wide, wide,
                                              [=, from = x + k * n](Accumulator<T>* acc, Index begin, Index end) {
                                                for (Index r = begin; r < end; ++r) {
                                                  const T* row = from + r * wide;
                                                  Index count = std::min(wide, n - r * wide);
#pragma omp simd
                                                  for (Index i = 0; i < count; ++i)
                                                    acc[i] += static_cast<Accumulator<T>>(row[i]);
                                                }
                                              });
      fold(sums, l.inner, copies);
      for (Index i = 0; i < l.inner; ++i) y[k * l.inner + i] = round(sums[i]);
    };
    if (l.outer == 1) return one(0);
    parallel_for(l.outer, n, [&](Index begin, Index end) {
      for (Index k = begin; k < end; ++k) one(k);
    });
  }
}

/// The larger of two; NaN if either is NaN.
template <class T>
T larger(T a, T b) {
  return b > a || b != b ? b : a;
}

template <class T>
void max_regular(T* y, const T* x, const ReduceLayout& l) {
  using A = Accumulator<T>;
  constexpr A lowest = -std::numeric_limits<A>::infinity();
  if (l.inner == 1) {
    sweep(l.outer, l.reduced, [=](Index begin, Index end) {
      constexpr Index lanes = 64;
      for (Index k = begin; k < end; ++k) {
        const T* row = x + k * l.reduced;
        A lane[lanes];
        std::fill_n(lane, lanes, lowest);
        for (Index at = 0; at < l.reduced; at += lanes) {
          Index n = std::min(lanes, l.reduced - at);
#pragma omp simd
          for (Index i = 0; i < n; ++i) lane[i] = larger(lane[i], static_cast<A>(row[at + i]));
        }
        for (Index half = lanes / 2; half > 0; half /= 2)
#pragma omp simd
          for (Index i = 0; i < half; ++i) lane[i] = larger(lane[i], lane[i + half]);
        put(y[k], lane[0]);
      }
    });
    return;
  }
  sweep(l.outer * l.inner, l.reduced, [=](Index begin, Index end) {
    while (begin < end) {
      Index k = begin / l.inner, column = begin % l.inner, n = std::min(end - begin, l.inner - column);
      T* out = y + begin;
      std::fill_n(out, n, T(lowest));
      for (Index r = 0; r < l.reduced; ++r) {
        const T* row = x + (k * l.reduced + r) * l.inner + column;
#pragma omp simd
        for (Index i = 0; i < n; ++i) put(out[i], larger(static_cast<A>(out[i]), static_cast<A>(row[i])));
      }
      begin += n;
    }
  });
}

/// Any pattern of axes: one output element at a time.
template <class T>
void reduce_any(View y, View x, ReduceKind kind, const ReduceLayout& l) {
  const Index inputs = l.cut.count();
  parallel_for(y.numel(), inputs * 16, [&](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      const T* from = x.as<const T>() + l.kept.offset(k)[0];
      double sum = 0, best = -std::numeric_limits<double>::infinity();
      for (Index j = 0; j < inputs; ++j) {
        const auto v = static_cast<double>(from[l.cut.offset(j)[0]]);
        sum += v;
        best = larger(best, v);
      }
      y.as<T>()[k] = static_cast<T>(static_cast<Accumulator<T>>(kind == ReduceKind::max ? best : sum * l.scale));
    }
  });
}

/// Sums wrap around on overflow.
void reduce_integers(View y, View x, bool largest, const ReduceLayout& l) {
  const Index inputs = x.numel() / y.numel();
  parallel_for(y.numel(), inputs * 2, [&, to = y.as<Index>(), from = x.as<const Index>()](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      const Index first = l.regular ? k / l.inner * l.reduced * l.inner + k % l.inner : l.kept.offset(k)[0];
      std::uint64_t sum = 0;
      Index best = std::numeric_limits<Index>::min();
      for (Index j = 0; j < inputs; ++j) {
        const Index v = from[first + (l.regular ? j * l.inner : l.cut.offset(j)[0])];
        sum += static_cast<std::uint64_t>(v);
        best = std::max(best, v);
      }
      to[k] = largest ? best : static_cast<Index>(sum);
    }
  });
}

void reduce(View y, View x, ReduceKind kind) {
  constexpr auto op = kernel::Reduce::name;
  const ReduceLayout l = reduce_layout(y, x, kind);
  if (y.numel() == 0) return;
  if (y.dtype == DType::i64) return reduce_integers(y, x, kind == ReduceKind::max, l);
  dispatch_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    if (!l.regular) return reduce_any<T>(y, x, kind, l);
    if (kind == ReduceKind::max) return max_regular(y.as<T>(), x.as<const T>(), l);
    sum_regular(y.as<T>(), x.as<const T>(), l);
  });
}

void argmax(View index, View x) {
  constexpr auto op = kernel::ArgMax::name;
  Index rows = row_count(x.shape), n = row_width(x.shape);
  check_argmax(index, x);
  if (rows == 0) return;
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    parallel_for(rows, n * 2, [=, to = index.as<Index>(), from = x.as<const T>()](Index begin, Index end) {
      for (Index r = begin; r < end; ++r) {
        const T* row = from + r * n;
        Index best = 0;
        for (Index i = 1; i < n && row[best] == row[best]; ++i)
          if (row[i] > row[best] || row[i] != row[i]) best = i;
        to[r] = best;
      }
    });
  });
}

void sum_squares(View sums, View x, View slices) {
  constexpr auto op = kernel::SumSquares::name;
  check_sum_squares(sums, slices);
  const Index whole[] = {0, x.numel()};
  const Index* bounds = slices ? slices.as<const Index>() : whole;
  dispatch_float(x.dtype, op, [&](auto t) {
    for (Index i = 0; i < sums.numel(); ++i) {
      const auto* from = x.as<const decltype(t)>() + bounds[2 * i];
      sums.as<double>()[i] =
          total(bounds[2 * i + 1] - bounds[2 * i], [from](Index at, Index n) { return row_squares(from + at, n); });
    }
  });
}

const Kernel<kernel::Reduce> reduce_cpu{DeviceKind::cpu, reduce};
const Kernel<kernel::ArgMax> argmax_cpu{DeviceKind::cpu, argmax};
const Kernel<kernel::SumSquares> sum_squares_cpu{DeviceKind::cpu, sum_squares};

}  // namespace
}  // namespace trireme
