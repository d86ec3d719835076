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

/// prepare(rows, sample) fills rows [given, width] with a number per channel; body(rows, at, n) works on elements
/// [at, at + n), n <= width, the first of which is of channel 0. Both are inlined into vector code.
template <class A, class Prepare, class Body>
void each_row(const Walk& w, Index given, Prepare prepare, Body body) {
  parallel_for(w.items(), w.cost(), [=](Index from, Index to) {
    A* rows = scratch<A>(given * w.width, 3);
    for (Index item = from; item < to; ++item)
      vectorised([=] {
        const Index sample = item / w.parts, first = sample * w.s.cells * w.s.channels;
        prepare(rows, sample);
        repeat_channels(rows, given, w);
        for (Index at = w.begin(item), end = w.end(item); at < end; at += w.width)
          body(rows, first + at, std::min(w.width, end - at));
      });
  });
}
constexpr Index rows_at_once = 64;  ///< summed in the accumulator's type before f64 takes over

/// Two sums per sample and channel, in f64: sums [samples, 2, channels], in scratch slot 0. prepare() as above; body
/// adds elements to acc [2, width].
template <class A, class Prepare, class Body>
double* sum_samples(const Walk& w, Index given, Prepare prepare, Body body) {
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
        for (Index block = w.begin(item); block < end; block += rows_at_once * w.width) {
          std::fill_n(acc, 2 * w.width, A{});
          for (Index at = block, stop = std::min(block + rows_at_once * w.width, end); at < stop; at += w.width)
            body(acc, rows, first + at, std::min(w.width, stop - at));
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
    const double* sums = sum_samples<A>(
        w, 1,
        [=](A* rows, Index sample) {
          for (Index c = 0; c < channels; ++c) rows[c] = static_cast<A>(from[sample * per_sample + c]);
        },
        [=](A* acc, const A* about, Index at, Index n) {
#pragma omp simd
          for (Index i = 0; i < n; ++i) {
            const A d = static_cast<A>(from[at + i]) - about[i];
            acc[i] += d, acc[width + i] += d * d;
          }
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
    each_row<A>(
        w, 3,
        [=, scale = gamma.as<const A>(), shift = beta.as<const A>()](A* rows, Index sample) {
          for (Index c = 0; c < channels; ++c) {
            const Index g = sample * s.groups + c / s.per_group();
            rows[c] = means[g], rows[width + c] = rstds[g] * (scale ? scale[c] : A{1});
            rows[2 * width + c] = shift ? shift[c] : A{};
          }
        },
        [=, to = y.as<T>()](const A* rows, Index at, Index n) {
#pragma omp simd
          for (Index i = 0; i < n; ++i)
            put(to[at + i], (static_cast<A>(from[at + i]) - rows[i]) * rows[width + i] + rows[2 * width + i]);
        });
  });
}

void backward_reduce(View sum_dy, View sum_dy_xhat, View dy, View x, View mean, View rstd) {
  constexpr auto op = kernel::GroupNormBackwardReduce::name;
  check_same(dy, x, op);
  const GroupShape s = check_groups({&mean, &rstd}, {&sum_dy, &sum_dy_xhat}, {}, x, op);
  dispatch_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Walk w(s);
    const Index channels = s.channels, width = w.width;
    const double* sums = sum_samples<A>(
        w, 2,
        [=, means = mean.as<const A>(), rstds = rstd.as<const A>()](A* rows, Index sample) {
          for (Index c = 0; c < channels; ++c) {
            const Index g = sample * s.groups + c / s.per_group();
            rows[c] = means[g], rows[width + c] = rstds[g];
          }
        },
        [=, seed = dy.as<const T>(), from = x.as<const T>()](A* acc, const A* rows, Index at, Index n) {
#pragma omp simd
          for (Index i = 0; i < n; ++i) {
            const A g = static_cast<A>(seed[at + i]);
            acc[i] += g, acc[width + i] += g * (static_cast<A>(from[at + i]) - rows[i]) * rows[width + i];
          }
        });
    A *plain = sum_dy.as<A>(), *weighted = sum_dy_xhat.as<A>();
    for (Index sample = 0; sample < s.samples; ++sample)
      for (Index c = 0; c < channels; ++c) {
        plain[sample * channels + c] = static_cast<A>(sums[sample * 2 * channels + c]);
        weighted[sample * channels + c] = static_cast<A>(sums[(sample * 2 + 1) * channels + c]);
      }
  });
}

void backward_input(View dx, View dy, View x, View mean, View rstd, View gamma, View sum_dy, View sum_dy_xhat) {
  constexpr auto op = kernel::GroupNormBackwardInput::name;
  check_same(dx, dy, op);
  check_same(dx, x, op);
  const GroupShape s = check_groups({&mean, &rstd}, {&sum_dy, &sum_dy_xhat}, {&gamma}, x, op);
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, op, [&](auto t) {
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
    each_row<A>(
        w, 4, prepare,
        [=, to = dx.as<T>(), seed = dy.as<const T>(), from = x.as<const T>()](const A* rows, Index at, Index n) {
#pragma omp simd
          for (Index i = 0; i < n; ++i)
            put(to[at + i], static_cast<A>(seed[at + i]) * rows[width + i] - rows[2 * width + i] -
                                (static_cast<A>(from[at + i]) - rows[i]) * rows[3 * width + i]);
        });
  });
}

const Kernel<kernel::GroupNorm> group_norm_cpu{DeviceKind::cpu, group_norm};
const Kernel<kernel::GroupNormBackwardReduce> backward_reduce_cpu{DeviceKind::cpu, backward_reduce};
const Kernel<kernel::GroupNormBackwardInput> backward_input_cpu{DeviceKind::cpu, backward_input};

}  // namespace
}  // namespace trireme
