// Group norm: statistics of the channels of each sample, joined to those of groups.
#include <cmath>

#include "kernels/contracts/norm.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/norm_checks.h"

namespace trireme {
namespace {

/// How the elements are walked: each sample in parts, of rows that hold all channels `copies` times.
struct Walk {
  explicit Walk(const GroupShape& shape)
      : s(shape),
        parts(std::clamp<Index>(s.cells * s.channels / 65536, 1, std::min<Index>(s.cells, 16))),
        width(s.channels * repeats(s.channels)) {}
  GroupShape s;
  Index parts, width;

  Index items() const { return s.samples * parts; }
  Index cost() const { return s.cells * s.channels * 4 / parts + 1; }
  /// Elements [begin, end) of the item's part, counted from the first of its sample.
  Index begin(Index item) const { return s.cells * (item % parts) / parts * s.channels; }
  Index end(Index item) const { return s.cells * (item % parts + 1) / parts * s.channels; }
};
/// Repeats the `channels` numbers at the head of each of so many rows until they fill it.
template <class A>
void repeat_channels(A* rows, Index count, const Walk& w) {
  for (Index r = 0; r < count; ++r)
    for (Index i = w.s.channels; i < w.width; ++i) rows[r * w.width + i] = rows[r * w.width + i - w.s.channels];
}

constexpr int lanes = 16;  ///< columns whose numbers stay in registers while rows go by

/// Runs element(a, b, at, k0, k_last), or without sums element(at, k0, k1, k2, k_last), over `count` elements from
/// `first` on, seen as rows of `width`, the last of which may be cut short: k are rows[0 .. given][column]; a and b are
/// the column's sums, which are added to acc [2, width]. 16 columns at a time go down all rows, so that what belongs to
/// a column stays in registers.
template <class A, int given, bool sums, class Element>
void walk_columns(A* acc, const A* rows, Index width, Index first, Index count, Element element) {
  const Index whole = count / width;
  Index column = 0;
  for (; whole > 0 && width <= 64 && column + lanes <= width; column += lanes) {
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
      for (int j = 0; j < lanes; ++j) acc[column + j] += a[j], acc[width + column + j] += b[j];
  }
  const auto stretch = [&](Index from, Index begin, Index end) {
#pragma omp simd
    for (Index i = begin; i < end; ++i) {
      const A *k = rows + i, last = k[(given - 1) * width];
      if constexpr (sums)
        element(acc[i], acc[width + i], from + i, k[0], last);
      else
        element(from + i, k[0], k[width], k[2 * width], last);
    }
  };
  for (Index r = 0; r < whole && column < width; ++r) stretch(first + r * width, column, width);
  if (count > whole * width) stretch(first + whole * width, 0, count - whole * width);
}
/// Elements that are walked column by column: they stay in the first cache. Sums of at most 64 rows are added to f64.
constexpr Index block_of(Index width) { return std::clamp<Index>(2048 / width, 1, 64) * width; }

/// prepare(rows, sample) fills rows [given, width] with a number per channel; element() of walk_columns works on an
/// element. Both are inlined into vector code.
template <class A, int given, class Prepare, class Element>
void each_element(const Walk& w, Prepare prepare, Element element) {
  parallel_for(w.items(), w.cost(), [=](Index from, Index to) {
    A* rows = scratch<A>(given * w.width, 3);
    for (Index item = from; item < to; ++item)
      vectorised([=] {
        const Index sample = item / w.parts, first = sample * w.s.cells * w.s.channels, end = w.end(item);
        prepare(rows, sample);
        repeat_channels(rows, given, w);
        for (Index at = w.begin(item), block = block_of(w.width); at < end; at += block)
          walk_columns<A, given, false>(rows, rows, w.width, first + at, std::min(block, end - at), element);
      });
  });
}

/// Two sums per sample and channel, in f64: sums [samples, 2, channels], in scratch slot 0. prepare() as above;
/// element() of walk_columns adds an element to both.
template <class A, int given, class Prepare, class Element>
double* sum_samples(const Walk& w, Prepare prepare, Element element) {
  const Index channels = w.s.channels, sets = 2 * channels;
  double* sums = scratch<double>(w.items() * sets, 0);
  parallel_for(w.items(), w.cost(), [=](Index from, Index to) {
    A* rows = scratch<A>((given + 2) * w.width, 3);
    A* acc = rows + given * w.width;
    for (Index item = from; item < to; ++item)
      vectorised([=] {
        const Index sample = item / w.parts, first = sample * w.s.cells * channels, end = w.end(item);
        double* sum = sums + item * sets;
        prepare(rows, sample);
        repeat_channels(rows, given, w);
        std::fill_n(sum, sets, 0.0);
        for (Index at = w.begin(item), block = block_of(w.width); at < end; at += block) {
          std::fill_n(acc, 2 * w.width, A{});
          walk_columns<A, given, true>(acc, rows, w.width, first + at, std::min(block, end - at), element);
          for (Index set = 0; set < 2; ++set)
            for (Index k = 0; k < w.width; k += channels)
              for (Index c = 0; c < channels; ++c) sum[set * channels + c] += acc[set * w.width + k + c];
        }
      });
  });
  for (Index sample = 0; sample < w.s.samples; ++sample)
    for (Index part = 0; part < w.parts; ++part)
      for (Index i = 0; i < sets; ++i) {
        const double v = sums[(sample * w.parts + part) * sets + i];
        double& to = sums[sample * sets + i];
        to = part == 0 ? v : to + v;
      }
  return sums;
}

/// Samples at a time whose elements, of so many tensors, stay in each core's cache between two passes.
Index samples_at_once(const GroupShape& s, DType type, int tensors) {
  constexpr Index cache = Index{3} << 18;
  const Index bytes = std::max<Index>(s.cells * s.channels * size_of(type) * tensors, 1);
  return std::max<Index>(cache / bytes, 1) * threads();
}
/// Samples [begin, end) of a tensor [N, ...], or View{}.
View samples_of(View v, Index begin, Index end) {
  if (!v) return v;
  v.data = v.as<std::byte>() + begin * v.shape.product(1, v.shape.rank()) * size_of(v.dtype);
  v.shape[0] = end - begin;
  return v;
}

void group_norm(View y, View mean, View rstd, View x, View gamma, View beta, double eps) {
  constexpr auto op = kernel::GroupNorm::name;
  check_same(y, x, op);
  const GroupShape s = check_groups({&mean, &rstd}, {}, {&gamma, &beta}, x, op);
  if (x.numel() == 0) return;
  if (const Index most = samples_at_once(s, x.dtype, 1); s.samples > most) {
    for (Index at = 0; at < s.samples; at += most) {
      const auto part = [&](const View& v) { return samples_of(v, at, std::min(at + most, s.samples)); };
      group_norm(part(y), part(mean), part(rstd), part(x), gamma, beta, eps);
    }
    return;
  }
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Walk w(s);
    const Index channels = s.channels, width = w.width, per_sample = s.cells * channels;
    const auto* from = x.as<const T>();
    // Deviations from a sample's first cell: nothing cancels, in one pass.
    const double* sums = sum_samples<A, 1>(
        w,
        [=](A* rows, Index sample) {
          for (Index c = 0; c < channels; ++c) rows[c] = static_cast<A>(from[sample * per_sample + c]);
        },
        [=](A& sum, A& squares, Index at, A about, A) {
          const A d = static_cast<A>(from[at]) - about;
          sum += d, squares += d * d;
        });
    A *means = mean.as<A>(), *rstds = rstd.as<A>();
    const auto cells = static_cast<double>(s.cells);
    for (Index sample = 0; sample < s.samples; ++sample)
      for (Index g = 0; g < s.groups; ++g) {
        const Index first = g * s.per_group();
        const double *d = sums + sample * 2 * channels + first, *squares = d + channels;
        const T* about = from + sample * per_sample + first;
        double sum = 0, m2 = 0;
        for (Index c = 0; c < s.per_group(); ++c) sum += static_cast<double>(static_cast<A>(about[c])) + d[c] / cells;
        const double center = sum / static_cast<double>(s.per_group());
        for (Index c = 0; c < s.per_group(); ++c) {
          const double off = static_cast<double>(static_cast<A>(about[c])) + d[c] / cells - center;
          m2 += squares[c] - d[c] * d[c] / cells + cells * off * off;
        }
        const double variance = std::max(m2 / (cells * static_cast<double>(s.per_group())), 0.0);
        means[sample * s.groups + g] = static_cast<A>(center);
        rstds[sample * s.groups + g] = static_cast<A>(1 / std::sqrt(variance + eps));
      }
    each_element<A, 3>(
        w,
        [=, scale = gamma.as<const A>(), shift = beta.as<const A>()](A* rows, Index sample) {
          for (Index c = 0; c < channels; ++c) {
            const Index g = sample * s.groups + c / s.per_group();
            rows[c] = means[g], rows[width + c] = rstds[g] * (scale ? scale[c] : A{1});
            rows[2 * width + c] = shift ? shift[c] : A{};
          }
        },
        [=, to = y.as<T>()](Index at, A center, A factor, A shift, A) {
          put(to[at], (static_cast<A>(from[at]) - center) * factor + shift);
        });
  });
}

void backward_sums(const GroupShape& s, View sum_dy, View sum_dy_xhat, View dy, View x, View mean, View rstd) {
  dispatch_float(x.dtype, kernel::GroupNormBackward::name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Walk w(s);
    const Index channels = s.channels, width = w.width;
    const double* sums = sum_samples<A, 2>(
        w,
        [=, means = mean.as<const A>(), rstds = rstd.as<const A>()](A* rows, Index sample) {
          for (Index c = 0; c < channels; ++c) {
            const Index g = sample * s.groups + c / s.per_group();
            rows[c] = means[g], rows[width + c] = rstds[g];
          }
        },
        [=, seed = dy.as<const T>(), from = x.as<const T>()](A& sum, A& with_xhat, Index at, A center, A factor) {
          const A g = static_cast<A>(seed[at]);
          sum += g, with_xhat += g * (static_cast<A>(from[at]) - center) * factor;
        });
    A *plain = sum_dy.as<A>(), *weighted = sum_dy_xhat.as<A>();
    for (Index sample = 0; sample < s.samples; ++sample)
      for (Index c = 0; c < channels; ++c) {
        plain[sample * channels + c] = static_cast<A>(sums[sample * 2 * channels + c]);
        weighted[sample * channels + c] = static_cast<A>(sums[(sample * 2 + 1) * channels + c]);
      }
  });
}

void backward_input(const GroupShape& s, View dx, View dy, View x, View mean, View rstd, View gamma, View sum_dy,
                    View sum_dy_xhat) {
  dispatch_float(x.dtype, kernel::GroupNormBackward::name, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Walk w(s);
    const Index channels = s.channels, width = w.width;
    const auto count = static_cast<A>(s.cells * s.per_group());
    const auto prepare = [=, means = mean.as<const A>(), rstds = rstd.as<const A>(), scale = gamma.as<const A>(),
                          plain = sum_dy.as<const A>(), weighted = sum_dy_xhat.as<const A>()](A* rows, Index sample) {
      for (Index g = 0; g < s.groups; ++g) {
        const A center = means[sample * s.groups + g], factor = rstds[sample * s.groups + g];
        A sum{}, sum_xhat{};
        for (Index c = g * s.per_group(); c < (g + 1) * s.per_group(); ++c) {
          const A by = scale ? scale[c] : A{1};
          sum += by * plain[sample * channels + c], sum_xhat += by * weighted[sample * channels + c];
        }
        for (Index c = g * s.per_group(); c < (g + 1) * s.per_group(); ++c) {
          rows[c] = center, rows[width + c] = factor * (scale ? scale[c] : A{1});
          rows[2 * width + c] = factor * sum / count, rows[3 * width + c] = factor * factor * sum_xhat / count;
        }
      }
    };
    each_element<A, 4>(
        w, prepare,
        [=, to = dx.as<T>(), seed = dy.as<const T>(), from = x.as<const T>()](Index at, A center, A factor, A mean_dy,
                                                                              A mean_xhat) {
          put(to[at], static_cast<A>(seed[at]) * factor - mean_dy - (static_cast<A>(from[at]) - center) * mean_xhat);
        });
  });
}

void backward(View sum_dy, View sum_dy_xhat, View dx, View dy, View x, View mean, View rstd, View gamma) {
  constexpr auto op = kernel::GroupNormBackward::name;
  check_same(dy, x, op);
  if (dx) check_same(dx, x, op);
  const GroupShape s = check_groups({&mean, &rstd}, {&sum_dy, &sum_dy_xhat}, {&gamma}, x, op);
  const Index most = dx ? samples_at_once(s, x.dtype, 2) : s.samples;
  for (Index at = 0; at < s.samples; at += most) {
    const Index end = std::min(at + most, s.samples);
    const auto part = [&](const View& v) { return samples_of(v, at, end); };
    GroupShape some = s;
    some.samples = end - at;
    backward_sums(some, part(sum_dy), part(sum_dy_xhat), part(dy), part(x), part(mean), part(rstd));
    if (dx && x.numel() > 0)
      backward_input(some, part(dx), part(dy), part(x), part(mean), part(rstd), gamma, part(sum_dy), part(sum_dy_xhat));
  }
}

const Kernel<kernel::GroupNorm> group_norm_cpu{DeviceKind::cpu, group_norm};
const Kernel<kernel::GroupNormBackward> backward_cpu{DeviceKind::cpu, backward};

}  // namespace
}  // namespace trireme
