// Reduce, ArgMax and SumSquares. Sums end in f64. Their order depends only on the shape and the device.
#include "kernels/core/kernel.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/team.cuh"
#include "kernels/plans/reduce_layout.h"

namespace trireme::gpu {
namespace {

struct Largest {
  template <class V>
  __device__ static V none() {
    return -std::numeric_limits<V>::infinity();
  }
  template <class V>
  __device__ static void merge(V* into, const V* from, V, V) {
    into[0] = Larger{}(into[0], from[0]);
  }
};

// A reduction is a struct with T (an element), Sum (a thread's partial result), Op, add() and none<V>(). width:
// elements that are read at once.
template <class Element>
struct SumOf : AddUp<1> {
  using T = Element;
  using Sum = Accumulator<T>;
  using Op = Plus;
  static constexpr bool largest = false;
  static constexpr int width = pack<T>;
  __device__ static void add(Sum& sum, T v) { sum += wide(v); }
};
template <class Element>
struct SquaresOf : SumOf<Element> {
  using Sum = double;
  __device__ static void add(double& sum, Element v) {
    const auto x = static_cast<double>(wide(v));
    sum += x * x;
  }
};
template <class Element>
struct LargestOf : Largest {
  using T = Element;
  using Sum = Accumulator<T>;
  using Op = Larger;
  static constexpr bool largest = true;
  static constexpr int width = 1;
  __device__ static void add(Sum& best, T v) { best = Larger{}(best, wide(v)); }
};

/// Rows cut into parts that a team takes each.
struct Stretches {
  Index rows, width, parts;
};

/// A team's partial result for part `part` of `parts`, of `width` elements.
template <int n, class P>
__device__ double stretch_part(const Team& team, const typename P::T* from, Index width, Index part, Index parts) {
  using A = typename P::Sum;
  constexpr int ahead = 4, run = 64;  // packs that a thread reads at once; packs gathered before f64 takes over
  const Index packs = width / n, end = packs * (part + 1) / parts;
  double total = P::template none<double>();
  for (Index at = packs * part / parts + team.rank(); at < end;) {
    A acc[n];
#pragma unroll
    for (A& a : acc) a = P::template none<A>();
    for (int i = 0; i < run && at < end; i += ahead) {
      Pack<typename P::T, n> next[ahead];
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (at + u * team.size < end) next[u] = load<n>(from + (at + u * team.size) * n);
#pragma unroll
      for (int u = 0; u < ahead; ++u)
        if (at + u * team.size < end)
#pragma unroll
          for (int j = 0; j < n; ++j) P::add(acc[j], next[u].v[j]);
      at += ahead * team.size;
    }
#pragma unroll
    for (const A& a : acc) total = typename P::Op{}(total, static_cast<double>(a));
  }
  const Index tail = packs * n + team.rank();  // fewer than n elements, of the last part
  if (part == parts - 1 && tail < width) {
    A last = P::template none<A>();
    P::add(last, from[tail]);
    total = typename P::Op{}(total, static_cast<double>(last));
  }
  return team.combine(total, P::template none<double>(), typename P::Op{});
}

/// partials[row][part]. slices: begin and end of each stretch of x; null: adjacent rows. vector: a stretch that begins
/// at a multiple of n may be read 16 bytes at a time.
template <int n, class P>
__global__ void __launch_bounds__(block)
    stretch_parts(Team team, Stretches s, const typename P::T* x, const Index* slices, bool vector, double* partials) {
  for (Index k = team.first(); k < s.rows * s.parts; k += team.step()) {
    const Index row = k / s.parts, part = k - row * s.parts;
    const Index begin = slices ? slices[2 * row] : row * s.width;
    const Index width = slices ? slices[2 * row + 1] - begin : s.width;
    const double total = vector && begin % n == 0 ? stretch_part<n, P>(team, x + begin, width, part, s.parts)
                                                  : stretch_part<1, P>(team, x + begin, width, part, s.parts);
    if (team.rank() == 0) partials[k] = total;
  }
}

/// y[row] = the parts together, times scale.
template <class T>
struct MergeStretches {
  T* y;
  const double* partials;
  Index parts;
  bool largest;
  double scale;

  template <int n>
  __device__ void operator()(const Team& team, Count<n>, Index row) const {
    const auto both = [this](double a, double b) { return largest ? Larger{}(a, b) : a + b; };
    const double none = largest ? -std::numeric_limits<double>::infinity() : 0;
    double total = none;
    for (Index i = team.rank(); i < parts; i += team.size) total = both(total, partials[row * parts + i]);
    total = team.combine(total, none, both);
    if (team.rank() == 0) y[row] = rounded<T>(static_cast<Accumulator<T>>(total * scale));
  }
};

/// A thread of a part has 16 packs at least, and there are four blocks to a multiprocessor at most, where rows allow
/// it.
template <class T>
Stretches cut_stretches(const On& on, Index rows, Index width) {
  const Index most = std::max<Index>(static_cast<Index>(on.multiprocessors()) * 4 / rows, 1);
  return {rows, width, std::clamp<Index>(width / (block * pack<T> * 16), 1, most)};
}

template <class P, class T>
void reduce_stretches(const On& on, T* y, const typename P::T* x, const Stretches& s, const Index* slices,
                      double scale) {
  constexpr int n = P::width;
  const Scratch partials(on, static_cast<std::size_t>(s.rows * s.parts) * sizeof(double));
  const bool vector = aligned(x) && (slices || s.rows == 1 || s.width % n == 0);
  const Team team{!slices && s.width <= 2048 ? warp : block};
  run(on, blocks_for(on, s.rows * s.parts, team.per_block()), block, stretch_parts<n, P>, team, s, x, slices, vector,
      partials.as<double>());
  each_row_by<1>(on, Team{warp}, s.rows, MergeStretches<T>{y, partials.as<const double>(), s.parts, P::largest, scale});
}
template <class P, class T>
void reduce_rows(const On& on, T* y, const typename P::T* x, Index rows, Index width, double scale) {
  reduce_stretches<P>(on, y, x, cut_stretches<typename P::T>(on, rows, width), nullptr, scale);
}

template <class T>
struct ColumnLargest : ColumnSum<T> {
  using Merge = Largest;
  using Sum = Accumulator<T>;
  using Nothing = typename ColumnSum<T>::Nothing;
  template <int n>
  __device__ void add(Sum (&best)[1][n], Nothing, const Pack<T, n>& v, Index) const {
#pragma unroll
    for (int i = 0; i < n; ++i) best[0][i] = Larger{}(best[0][i], wide(v.v[i]));
  }
};
template <class T>
struct StoreScaled {
  T* y;
  double scale;

  __device__ void operator()(Index column, const double* sums, double) const {
    y[column] = rounded<T>(static_cast<Accumulator<T>>(sums[0] * scale));
  }
};

/// Any pattern of axes: a thread per output.
template <class T>
struct ReduceAny {
  T* y;
  const T* x;
  Index inputs;  ///< per output
  DeviceLoop<Index, 1> kept, cut;
  bool largest;
  double scale;

  template <int n>
  __device__ void operator()(Count<n>, Index k) const {
    const T* from = x + kept.offset(k).of[0];
    double sum = 0, best = -std::numeric_limits<double>::infinity();
    for (Index j = 0; j < inputs; ++j) {
      const auto v = static_cast<double>(wide(from[cut.offset(j).of[0]]));
      sum += v;
      best = Larger{}(best, v);
    }
    y[k] = rounded<T>(static_cast<Accumulator<T>>(largest ? best : sum * scale));
  }
};

/// Of i64; sums overflow into their lowest bits.
struct ReduceIntegers {
  Index* y;
  const Index* x;
  Index inputs, reduced, inner;
  bool regular, largest;
  DeviceLoop<Index, 1> kept, cut;

  template <int n>
  __device__ void operator()(Count<n>, Index k) const {
    const Index first = regular ? k / inner * reduced * inner + k % inner : kept.offset(k).of[0];
    std::uint64_t sum = 0;
    Index best = std::numeric_limits<Index>::min();
    for (Index j = 0; j < inputs; ++j) {
      const Index v = x[first + (regular ? j * inner : cut.offset(j).of[0])];
      sum += static_cast<std::uint64_t>(v);
      best = v > best ? v : best;
    }
    y[k] = largest ? best : static_cast<Index>(sum);
  }
};

void reduce(View y, View x, ReduceKind kind) {
  constexpr auto op = kernel::Reduce::name;
  const ReduceLayout l = reduce_layout(y, x, kind);
  if (y.numel() == 0) return;
  const On on(y.device, op);
  const bool largest = kind == ReduceKind::max;
  if (y.dtype == DType::i64)
    return each<1>(on, y.numel(), false,
                   ReduceIntegers{y.as<Index>(), x.as<const Index>(), x.numel() / y.numel(), l.reduced, l.inner,
                                  l.regular, largest, DeviceLoop<Index, 1>(l.kept), DeviceLoop<Index, 1>(l.cut)});
  dispatch_device_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    T* to = y.as<T>();
    const T* from = x.as<const T>();
    if (!l.regular)
      return each<1>(on, y.numel(), false,
                     ReduceAny<T>{to, from, l.cut.count(), DeviceLoop<Index, 1>(l.kept), DeviceLoop<Index, 1>(l.cut),
                                  largest, l.scale});
    if (l.inner == 1)
      return largest ? reduce_rows<LargestOf<T>>(on, to, from, l.outer, l.reduced, 1)
                     : reduce_rows<SumOf<T>>(on, to, from, l.outer, l.reduced, l.scale);
    if (largest)
      reduce_columns_by<1>(on, l.outer, l.reduced, l.inner, ColumnLargest<T>{{{}, from}}, StoreScaled<T>{to, 1});
    else
      reduce_columns(on, l.outer, l.reduced, l.inner, aligned(from), ColumnSum<T>{{}, from},
                     StoreScaled<T>{to, l.scale});
  });
}

/// The first of the largest; a NaN is larger than all.
template <class T>
struct FirstLargest {
  Index* index;
  const T* x;
  Index width;

  template <int n>
  __device__ void operator()(const Team& team, Count<n>, Index row) const {
    using A = Accumulator<T>;
    constexpr Index none = std::numeric_limits<Index>::max();
    constexpr A lowest = -std::numeric_limits<A>::infinity();
    const T* from = x + row * width;
    A best = lowest;
    Index at = none;
    for (Index i = team.rank(); i < width; i += team.size) {
      const A v = wide(from[i]);
      if (at == none || v > best || (v != v && best == best)) {
        best = v;
        at = i;
      }
    }
    const A all = team.combine(best, lowest, Larger{});
    const bool mine = best == all || (best != best && all != all);
    at = team.combine(mine ? at : none, none, Smaller{});
    if (team.rank() == 0) index[row] = at;
  }
};

void argmax(View index, View x) {
  constexpr auto op = kernel::ArgMax::name;
  check_argmax(index, x);
  const On on(x.device, op);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using T = decltype(t);
    const Index width = row_width(x.shape);
    each_row_by<1>(on, Team{width <= 256 ? warp : block}, row_count(x.shape),
                   FirstLargest<T>{index.as<Index>(), x.as<const T>(), width});
  });
}

void sum_squares(View sums, View x, View slices) {
  constexpr auto op = kernel::SumSquares::name;
  check_sum_squares(sums, slices);
  if (sums.numel() == 0) return;
  const On on(x.device, op);
  dispatch_device_float(x.dtype, op, [&](auto t) {
    using P = SquaresOf<decltype(t)>;
    const auto* from = x.as<const decltype(t)>();
    Stretches s = cut_stretches<decltype(t)>(on, 1, x.numel());  // slices: as if all were about as long
    if (slices) {
      s.rows = sums.numel();
      s.parts = ceil_div(s.parts, s.rows);
    }
    reduce_stretches<P>(on, sums.as<double>(), from, s, slices.as<const Index>(), 1);
  });
}

const Kernel<kernel::Reduce> reduce_cuda{DeviceKind::cuda, reduce};
const Kernel<kernel::ArgMax> argmax_cuda{DeviceKind::cuda, argmax};
const Kernel<kernel::SumSquares> sum_squares_cuda{DeviceKind::cuda, sum_squares};

}  // namespace
}  // namespace trireme::gpu
