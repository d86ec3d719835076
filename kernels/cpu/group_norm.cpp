// Group norm: statistics of each sample's channels, merged into statistics of groups.
#include <cmath>

#include "kernels/contracts/norm.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/norm_checks.h"

namespace trireme {
namespace {

/// How the elements are processed: each sample in parts, of rows that contain all channels `copies` times.
struct Walk {
  explicit Walk(const GroupShape& shape)
      : s(shape),
        parts(std::clamp<Index>(s.cells * s.channels / 65536, 1, std::clamp<Index>(s.cells, 1, 16))),
        width(s.channels * repeats(s.channels)) {}
  GroupShape s;
  Index parts, width;

  Index items() const { return s.samples * parts; }
  Index cost() const { return s.cells * s.channels * 4 / parts + 1; }
  /// Elements [begin, end) of the item's part, counted from the first of its sample.
  Index begin(Index item) const { return s.cells * (item % parts) / parts * s.channels; }
  Index end(Index item) const { return s.cells * (item % parts + 1) / parts * s.channels; }
};
/// Repeats the first `channels` numbers of each row until they fill the row.
template <class A>
void repeat_channels(A* rows, Index count, const Walk& w) {
  for (Index r = 0; r < count; ++r)
    for (Index i = w.s.channels; i < w.width; ++i) rows[r * w.width + i] = rows[r * w.width + i - w.s.channels];
}

/// Runs element(a, b, at, k0, k_last), or without sums element(at, k0, k1, k2, k_last), over `count` elements from
/// `first` on, seen as rows of `width`; the last row may be shorter. k are rows[0 .. given][column]. a and b are the
/// column's sums, which are added to acc [2, width].
template <class A, int given, bool sums, class Element>
void walk_columns(A* acc, const A* rows, Index width, Index first, Index count, Element element) {
  const Index whole = count / width;
  Index column = 0;
  // This many columns are processed over all rows, so that a column's numbers stay in registers.
  const auto tiles = [&](auto columns) {
    constexpr int lanes = columns;
    for (; whole > 0 && column + lanes <= width; column += lanes) {
      A k[given][lanes], a[lanes] = {}, b[lanes] = {};
      for (int g = 0; g < given; ++g)
        for (int j = 0; j < lanes; ++j) k[g][j] = rows[g * width + column + j];
      for (Index r = 0; r < whole; ++r) {
        const Index at = first + r * width + column;
#pragma omp simd
        for (int j = 0; j < lanes; ++j) {
          if constexpr (sums)
            element(a[j], b[j], at + j, k[0][j], k[given - 1][j]);
          else
            element(at + j, k[0][j], k[1][j], k[2][j], k[given - 1][j]);
        }
      }
      if constexpr (sums)
        for (int j = 0; j < lanes; ++j) {
          acc[column + j] += a[j];
          acc[width + column + j] += b[j];
        }
    }
  };
  // Wide rows fit the registers of AVX-512 only; elsewhere the order of memory is faster. There a few rows at a time
  // share the loads and stores of sums. (More than one written stream slows the memory.)
  const bool v4 = vector_level() == VectorLevel::v4;
  if (v4) tiles(std::integral_constant<int, 128>{});
  if (v4 || width < 128) tiles(std::integral_constant<int, 64>{});
  const auto stretch = [&]<Index... r>(std::integer_sequence<Index, r...>, Index from, Index begin, Index end) {
#pragma omp simd
    for (Index i = begin; i < end; ++i) {
      const A *k = rows + i, k0 = k[0], last = k[(given - 1) * width];
      if constexpr (sums) {
        A a = acc[i], b = acc[width + i];
        (element(a, b, from + r * width + i, k0, last), ...);
        acc[i] = a;
        acc[width + i] = b;
      } else {
        element(from + i, k0, k[width], k[2 * width], last);
      }
    }
  };
  constexpr std::integer_sequence<Index, 0> one;
  constexpr std::make_integer_sequence<Index, sums ? 4 : 1> some;
  Index r = column < width ? 0 : whole;
  for (; r + Index{some.size()} <= whole; r += some.size()) stretch(some, first + r * width, column, width);
  for (; r < whole; ++r) stretch(one, first + r * width, column, width);
  stretch(one, first + whole * width, 0, count - whole * width);
}
constexpr Index block_rows = 64;  ///< rows of walk_columns, whose sums are then added to f64

/// Gives each(item), which runs element() of walk_columns over the part's elements. prepare(rows, sample) fills rows
/// [given, width] with a number per channel. Both are inlined into vector code.
template <class A, int given, class Prepare, class Element>
auto each_element(const Walk& w, Prepare prepare, Element element) {
  return [=](Index item) {
    A* rows = scratch<A>(given * w.width, 3);
    vectorised([=] {
      const Index sample = item / w.parts, first = sample * w.s.cells * w.s.channels, end = w.end(item);
      prepare(rows, sample);
      repeat_channels(rows, given, w);
      for (Index at = w.begin(item), block = block_rows * w.width; at < end; at += block)
        walk_columns<A, given, false>(rows, rows, w.width, first + at, std::min(block, end - at), element);
    });
  };
}

/// Gives sum(item, to): two sums per channel over the part's elements, in f64, to `to` [2, channels]. prepare() as
/// above; element() of walk_columns adds an element to both.
template <class A, int given, class Prepare, class Element>
auto sum_elements(const Walk& w, Prepare prepare, Element element) {
  return [=](Index item, double* to) {
    A* rows = scratch<A>((given + 2) * w.width, 3);
    vectorised([=, channels = w.s.channels, acc = rows + given * w.width] {
      const Index sample = item / w.parts, first = sample * w.s.cells * channels, end = w.end(item);
      prepare(rows, sample);
      repeat_channels(rows, given, w);
      std::fill_n(to, 2 * channels, 0.0);
      for (Index at = w.begin(item), block = block_rows * w.width; at < end; at += block) {
        std::fill_n(acc, 2 * w.width, A{});
        walk_columns<A, given, true>(acc, rows, w.width, first + at, std::min(block, end - at), element);
        for (Index set = 0; set < 2; ++set)
          for (Index k = 0; k < w.width; k += channels)
            for (Index c = 0; c < channels; ++c) to[set * channels + c] += acc[set * w.width + k + c];
      }
    });
  };
}

/// Two passes over each sample: sum(item, to) of its parts, finish(sample, sums) with their totals, and each(item). A
/// thread takes whole samples, so that the second pass finds them in its cache. The remaining samples are divided by
/// parts.
template <class Sum, class Finish, class Each>
void two_passes(const Walk& w, Sum sum, Finish finish, Each each) {
  const Index sets = 2 * w.s.channels, whole = w.s.samples - w.s.samples % threads();
  const auto finish_sums = [=](Index sample, double* sums) {
    for (Index part = 1; part < w.parts; ++part)
      for (Index i = 0; i < sets; ++i) sums[i] += sums[part * sets + i];
    finish(sample, sums);
  };
  parallel_for(whole, 2 * w.cost() * w.parts, [=](Index from, Index to) {
    double* sums = scratch<double>(w.parts * sets, 0);
    for (Index sample = from; sample < to; ++sample) {
      for (Index part = 0; part < w.parts; ++part) sum(sample * w.parts + part, sums + part * sets);
      finish_sums(sample, sums);
      for (Index part = 0; part < w.parts; ++part) each(sample * w.parts + part);
    }
  });
  const Index done = whole * w.parts, rest = w.items() - done;
  double* sums = scratch<double>(rest * sets, 0);
  parallel_for(rest, w.cost(), [=](Index from, Index to) {
    for (Index item = from; item < to; ++item) sum(done + item, sums + item * sets);
  });
  for (Index sample = whole; sample < w.s.samples; ++sample)
    finish_sums(sample, sums + (sample - whole) * w.parts * sets);
  parallel_for(rest, w.cost(), [=](Index from, Index to) {
    for (Index item = from; item < to; ++item) each(done + item);
  });
}

void group_norm(View y, View mean, View rstd, View x, View gamma, View beta, double eps) {
  constexpr auto op = kernel::GroupNorm::name;
  check_same(y, x, op);
  const GroupShape s = check_groups({&mean, &rstd}, {}, {&gamma, &beta}, x, op);
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Walk w(s);
    const Index channels = s.channels, width = w.width, per_sample = s.cells * channels;
    const auto* from = x.as<const T>();
    // Deviations from a sample's first cell: nothing cancels, in one pass.
    const auto sum = sum_elements<A, 1>(
        w,
        [=](A* rows, Index sample) {
          for (Index c = 0; c < channels; ++c) rows[c] = static_cast<A>(from[sample * per_sample + c]);
        },
        [=](A& sum, A& squares, Index at, A about, A) {
          const A d = static_cast<A>(from[at]) - about;
          sum += d;
          squares += d * d;
        });
    A *means = mean.as<A>(), *rstds = rstd.as<A>();
    const double cells = static_cast<double>(s.cells), share = 1 / cells;
    const auto finish = [=](Index sample, const double* sums) {
      for (Index g = 0; g < s.groups; ++g) {
        const Index first = g * s.per_group();
        const double *d = sums + first, *squares = d + channels;
        const T* about = from + sample * per_sample + first;
        double sum = 0, m2 = 0;
        for (Index c = 0; c < s.per_group(); ++c) sum += static_cast<double>(static_cast<A>(about[c])) + d[c] * share;
        const double center = sum / static_cast<double>(s.per_group());
        for (Index c = 0; c < s.per_group(); ++c) {
          const double off = static_cast<double>(static_cast<A>(about[c])) + d[c] * share - center;
          m2 += squares[c] - d[c] * d[c] * share + cells * off * off;
        }
        const double variance = std::max(m2 / (cells * static_cast<double>(s.per_group())), 0.0);
        means[sample * s.groups + g] = static_cast<A>(center);
        rstds[sample * s.groups + g] = static_cast<A>(1 / std::sqrt(variance + eps));
      }
    };
    const auto each = each_element<A, 3>(
        w,
        [=, scale = gamma.as<const A>(), shift = beta.as<const A>()](A* rows, Index sample) {
          for (Index c = 0; c < channels; ++c) {
            const Index g = sample * s.groups + c / s.per_group();
            rows[c] = means[g];
            rows[width + c] = rstds[g] * (scale ? scale[c] : A{1});
            rows[2 * width + c] = shift ? shift[c] : A{};
          }
        },
        [=, to = y.as<T>()](Index at, A center, A factor, A shift, A) {
          put(to[at], (static_cast<A>(from[at]) - center) * factor + shift);
        });
    two_passes(w, sum, finish, each);
  });
}

void group_norm_backward(View sum_dy, View sum_dy_xhat, View dx, View dy, View x, View mean, View rstd, View gamma) {
  constexpr auto op = kernel::GroupNormBackward::name;
  check_same(dy, x, op);
  if (dx) check_same(dx, x, op);
  const GroupShape s = check_groups({&mean, &rstd}, {&sum_dy, &sum_dy_xhat}, {&gamma}, x, op);
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Walk w(s);
    const Index channels = s.channels, width = w.width;
    const A *means = mean.as<const A>(), *rstds = rstd.as<const A>(), *scale = gamma.as<const A>();
    A *plain = sum_dy.as<A>(), *weighted = sum_dy_xhat.as<A>();
    const T *seed = dy.as<const T>(), *from = x.as<const T>();
    const auto sum = sum_elements<A, 2>(
        w,
        [=](A* rows, Index sample) {
          for (Index c = 0; c < channels; ++c) {
            const Index g = sample * s.groups + c / s.per_group();
            rows[c] = means[g];
            rows[width + c] = rstds[g];
          }
        },
        [=](A& sum, A& with_xhat, Index at, A center, A factor) {
          const A g = static_cast<A>(seed[at]);
          sum += g;
          with_xhat += g * (static_cast<A>(from[at]) - center) * factor;
        });
    const auto finish = [=](Index sample, const double* sums) {
      for (Index c = 0; c < channels; ++c) {
        plain[sample * channels + c] = static_cast<A>(sums[c]);
        weighted[sample * channels + c] = static_cast<A>(sums[channels + c]);
      }
    };
    const auto count = static_cast<A>(s.cells * s.per_group());
    const auto prepare = [=](A* rows, Index sample) {
      for (Index g = 0; g < s.groups; ++g) {
        const A center = means[sample * s.groups + g], factor = rstds[sample * s.groups + g];
        double all = 0, all_xhat = 0;
        for (Index c = g * s.per_group(); c < (g + 1) * s.per_group(); ++c) {
          const double by = scale ? scale[c] : A{1};
          all += by * plain[sample * channels + c];
          all_xhat += by * weighted[sample * channels + c];
        }
        const A sum = static_cast<A>(all), sum_xhat = static_cast<A>(all_xhat);
        for (Index c = g * s.per_group(); c < (g + 1) * s.per_group(); ++c) {
          rows[c] = center;
          rows[width + c] = factor * (scale ? scale[c] : A{1});
          rows[2 * width + c] = factor * sum / count;
          rows[3 * width + c] = factor * factor * sum_xhat / count;
        }
      }
    };
    const auto each =
        each_element<A, 4>(w, prepare, [=, to = dx.as<T>()](Index at, A center, A factor, A mean_dy, A mean_xhat) {
          put(to[at], static_cast<A>(seed[at]) * factor - mean_dy - (static_cast<A>(from[at]) - center) * mean_xhat);
        });
    const bool wanted = dx && x.numel() > 0;
    two_passes(w, sum, finish, [=](Index item) {
      if (wanted) each(item);
    });
  });
}

const Kernel<kernel::GroupNorm> group_norm_cpu{DeviceKind::cpu, group_norm};
const Kernel<kernel::GroupNormBackward> group_norm_backward_cpu{DeviceKind::cpu, group_norm_backward};

}  // namespace
}  // namespace trireme
