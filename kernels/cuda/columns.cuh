// Columns of [outer, rows, width]: sums (or other merges) over the rows, and loops with a column's numbers in
// registers. How sums are divided depends only on the shape and the device, and they are merged in a fixed order: parts
// of rows by blocks of threads in the elements' accumulator, then the parts in f64.
//
// What is summed is a struct P of pointers and numbers:
//   using T, Sum, Part; types of elements, of a thread's sums, and of a block's results
//   using Merge;                          AddUp<sets>, or another struct of none() and merge()
//   static constexpr int sets;            sums per column
//   static constexpr int ahead, resident; rows that a thread reads at once; blocks meant to share a multiprocessor
//   Fixed fixed<n>(column, at) numbers that are constant for n columns; at: a thread's first element
//   Fetched fetch<n>(row, at)             reads n elements of one row
//   void add<n>(sums[sets][n], fixed, fetched, at)
//   void close<n>(sums, fixed, count, base)  after the last of `count` rows, before the first merge; base: the element
//                                         in the first row of all that are merged next
//   Part part(set, sum, base)             after the last merge in Sum; base: of this column
// The results go to a struct with void operator()(Index column, const double* sums, double count), with column in [0,
// outer * width).
#pragma once
#include "kernels/cuda/launch.cuh"

namespace trireme::gpu {

/// Plain sums. Any merge: of nothing, and of a sum of `count` rows into one of `before`.
template <int sets>
struct AddUp {
  template <class V>
  __device__ static V none() {
    return 0;
  }
  template <class V>
  __device__ static void merge(V* into, const V* from, V, V) {
#pragma unroll
    for (int s = 0; s < sets; ++s) into[s] += from[s];
  }
};

/// A block is `across` threads wide and `down` threads high. There are `chunks` blocks next to each other and `parts`
/// below each other.
struct ColumnPlan {
  Index outer, rows, width;
  int across, down, chunks, parts;

  Index blocks() const { return outer * chunks * parts; }
  __host__ __device__ Index part_begin(int part) const { return rows * part / parts; }
};

/// n: columns per thread. One wave of blocks in which each thread has at least four rows and at most `longest`, the
/// limit for precise sums in f32; or several whole waves.
inline ColumnPlan plan_columns(const On& on, Index outer, Index rows, Index width, int n, int resident) {
  constexpr Index least = 4, longest = 256;
  const Index groups = ceil_div(width, n), chunks = ceil_div(groups, warp), across = ceil_div(groups, chunks);
  const Index down = block / across;
  const Index wave = std::max<Index>(on.multiprocessors() * resident / std::max<Index>(outer * chunks, 1), 1);
  const Index waves = std::max<Index>(ceil_div(ceil_div(rows, down * longest), wave), 1);
  const Index parts = std::clamp<Index>(ceil_div(rows, down * least), 1, wave * waves);
  return {outer,
          rows,
          width,
          static_cast<int>(across),
          static_cast<int>(down),
          static_cast<int>(chunks),
          static_cast<int>(parts)};
}

/// A thread's position. Surplus threads, and threads after the last column, have no rows.
struct ColumnPlace {
  Index outer, column, first;  ///< first: row
  int part, lane, count;       ///< count: rows first, first + down, ...
};
template <int n>
__device__ ColumnPlace column_place(const ColumnPlan& plan) {
  const unsigned chunks = static_cast<unsigned>(plan.chunks), parts = static_cast<unsigned>(plan.parts);
  const unsigned chunk = blockIdx.x % chunks, rest = blockIdx.x / chunks;
  const int thread = static_cast<int>(threadIdx.x), lane = thread / plan.across;
  ColumnPlace p;
  p.part = static_cast<int>(rest % parts);
  p.outer = rest / parts;
  p.lane = lane;
  p.column = (static_cast<Index>(chunk) * plan.across + thread % plan.across) * n;
  p.first = plan.part_begin(p.part) + lane;
  const Index left = plan.part_begin(p.part + 1) - p.first;
  const bool used = lane < plan.down && p.column < plan.width && left > 0;
  p.count = used ? static_cast<int>((left + plan.down - 1) / plan.down) : 0;
  return p;
}

/// acc: P's result for `count` rows row, row + step, ...; at: element of the first row; stride: elements between rows.
template <int n, class P, class A>
__device__ void column_run(const P& p, A (&acc)[P::sets][n], Index column, Index row, Index at, int step, Index stride,
                           int count, Index base) {
#pragma unroll
  for (int s = 0; s < P::sets; ++s)
#pragma unroll
    for (int i = 0; i < n; ++i) acc[s][i] = P::Merge::template none<A>();
  if (count == 0) return;
  const auto fixed = p.template fixed<n>(column, at);
  const Index skip = step * stride;
  int k = 0;
  for (; k + P::ahead <= count; k += P::ahead) {
    decltype(p.template fetch<n>(row, at)) next[P::ahead];
#pragma unroll
    for (int u = 0; u < P::ahead; ++u) next[u] = p.template fetch<n>(row + u * step, at + u * skip);
#pragma unroll
    for (int u = 0; u < P::ahead; ++u) p.template add<n>(acc, fixed, next[u], at + u * skip);
    row += P::ahead * step;
    at += P::ahead * skip;
  }
  for (; k < count; ++k, row += step, at += skip) p.template add<n>(acc, fixed, p.template fetch<n>(row, at), at);
  p.template close<n>(acc, fixed, count, base);
}

/// Merges the values of `lanes` threads, `across` apart, in shared[set * columns + column][thread] into the first of
/// them. All threads must call it, and all may read the result.
template <class Merge, int sets, class V, int all, int threads>
__device__ void merge_lanes(V (&shared)[all][threads], V (&counts)[threads], int lanes, int across) {
  constexpr int columns = all / sets;
  const int thread = static_cast<int>(threadIdx.x), lane = thread / across;
  for (int left = lanes; left > 1;) {
    const int half = (left + 1) / 2, other = thread + half * across;
    __syncthreads();
    if (lane + half < left) {
#pragma unroll
      for (int i = 0; i < columns; ++i) {
        V into[sets], from[sets];
#pragma unroll
        for (int s = 0; s < sets; ++s) {
          into[s] = shared[s * columns + i][thread];
          from[s] = shared[s * columns + i][other];
        }
        Merge::merge(into, from, counts[thread], counts[other]);
#pragma unroll
        for (int s = 0; s < sets; ++s) shared[s * columns + i][thread] = into[s];
      }
      counts[thread] += counts[other];
    }
    left = half;
  }
  __syncthreads();
}

/// partials[outer][part][set][width]
template <int n, class P>
__global__ void __launch_bounds__(block, P::resident) column_parts(ColumnPlan plan, P p, typename P::Part* partials) {
  using A = typename P::Sum;
  __shared__ A shared[P::sets * n][block];
  __shared__ A counts[block];
  const ColumnPlace at = column_place<n>(plan);
  const Index base = (at.outer * plan.rows + plan.part_begin(at.part)) * plan.width + at.column;
  A acc[P::sets][n];
  column_run<n>(p, acc, at.column, at.first, base + at.lane * plan.width, plan.down, plan.width, at.count, base);
#pragma unroll
  for (int s = 0; s < P::sets; ++s)
#pragma unroll
    for (int i = 0; i < n; ++i) shared[s * n + i][threadIdx.x] = acc[s][i];
  counts[threadIdx.x] = static_cast<A>(at.count);
  merge_lanes<typename P::Merge, P::sets>(shared, counts, plan.down, plan.across);
  if (at.lane > 0 || at.column >= plan.width) return;
  auto* to = partials + (at.outer * plan.parts + at.part) * P::sets * plan.width + at.column;
#pragma unroll
  for (int s = 0; s < P::sets; ++s)
#pragma unroll
    for (int i = 0; i < n; ++i) to[s * plan.width + i] = p.part(s, shared[s * n + i][threadIdx.x], base + i);
}

/// Merges the parts of `block / warp` columns to a block, each by a warp's worth of threads.
template <class Merge, int sets, class A, class Out>
__global__ void __launch_bounds__(block) merge_parts(ColumnPlan plan, const A* partials, Out out) {
  constexpr int columns = block / warp;
  __shared__ double shared[sets][block];
  __shared__ double counts[block];
  const int thread = static_cast<int>(threadIdx.x), lane = thread / columns;
  const Index column = static_cast<Index>(blockIdx.x) * columns + thread % columns;
  const bool used = column < plan.outer * plan.width;
  double sums[sets], count = 0;
#pragma unroll
  for (double& s : sums) s = Merge::template none<double>();
  if (used) {
    const Index o = column / plan.width;
    const A* from = partials + o * plan.parts * sets * plan.width + (column - o * plan.width);
#pragma unroll 4
    for (int part = lane; part < plan.parts; part += warp) {
      double more[sets];
#pragma unroll
      for (int s = 0; s < sets; ++s) more[s] = from[(static_cast<Index>(part) * sets + s) * plan.width];
      const auto rows = static_cast<double>(plan.part_begin(part + 1) - plan.part_begin(part));
      Merge::merge(sums, more, count, rows);
      count += rows;
    }
  }
#pragma unroll
  for (int s = 0; s < sets; ++s) shared[s][thread] = sums[s];
  counts[thread] = count;
  merge_lanes<Merge, sets>(shared, counts, warp, columns);
  if (!used || lane > 0) return;
#pragma unroll
  for (int s = 0; s < sets; ++s) sums[s] = shared[s][thread];
  out(column, sums, counts[thread]);
}

/// Each thread its own columns, all rows: for few rows, or columns enough to fill the device.
template <int n, class P, class Out>
__global__ void __launch_bounds__(block) column_whole(Index outer, Index rows, Index width, P p, Out out) {
  constexpr Index run = 64;
  const Index groups = width / n;
  for (Index k = first_item(); k < outer * groups; k += item_step()) {
    const Index o = k / groups, column = (k - o * groups) * n;
    double sums[n][P::sets];
#pragma unroll
    for (int i = 0; i < n; ++i)
#pragma unroll
      for (double& s : sums[i]) s = P::Merge::template none<double>();
    for (Index r = 0; r < rows; r += run) {
      typename P::Sum acc[P::sets][n];
      const int count = static_cast<int>(rows - r < run ? rows - r : run);
      const Index base = (o * rows + r) * width + column;
      column_run<n>(p, acc, column, r, base, 1, width, count, base);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        double more[P::sets];
#pragma unroll
        for (int s = 0; s < P::sets; ++s) more[s] = p.part(s, acc[s][i], base + i);
        P::Merge::merge(sums[i], more, static_cast<double>(r), static_cast<double>(count));
      }
    }
#pragma unroll
    for (int i = 0; i < n; ++i) out(o * width + column + i, sums[i], static_cast<double>(rows));
  }
}

template <int n, class P, class Out>
void reduce_columns_by(const On& on, Index outer, Index rows, Index width, const P& p, const Out& out) {
  const Index threads = outer * (width / n);
  if (rows <= 32 || threads >= static_cast<Index>(on.multiprocessors()) * 512)
    return run(on, blocks_for(on, threads), block, column_whole<n, P, Out>, outer, rows, width, p, out);
  const ColumnPlan plan = plan_columns(on, outer, rows, width, n, P::resident);
  using A = typename P::Part;
  const Scratch partials(on, static_cast<std::size_t>(outer * plan.parts * width) * P::sets * sizeof(A));
  run(on, dim3(static_cast<unsigned>(plan.blocks())), block, column_parts<n, P>, plan, p, partials.as<A>());
  run(on, dim3(static_cast<unsigned>(ceil_div(outer * width, block / warp))), block,
      merge_parts<typename P::Merge, P::sets, A, Out>, plan, partials.as<const A>(), out);
}
/// vector: whether the operands of p are aligned(). Rows that are no multiple of 16 bytes are handled here.
template <class P, class Out>
void reduce_columns(const On& on, Index outer, Index rows, Index width, bool vector, const P& p, const Out& out) {
  constexpr int n = pack<typename P::T>;
  if (outer * width == 0) return;
  if (vector && width % n == 0)
    reduce_columns_by<n>(on, outer, rows, width, p, out);
  else
    reduce_columns_by<1>(on, outer, rows, width, p, out);
}

/// p.put<n>(fixed, fetched, at) on all elements of a walk.
template <int n, class P>
__global__ void __launch_bounds__(block, P::resident) column_walk(ColumnPlan plan, P p) {
  const ColumnPlace place = column_place<n>(plan);
  if (place.count == 0) return;
  Index row = place.first, at = row * plan.width + place.column;
  const auto fixed = p.template fixed<n>(place.column, at);
  const Index skip = plan.down * plan.width;
  int k = 0;
  for (; k + P::ahead <= place.count; k += P::ahead) {
    decltype(p.template fetch<n>(row, at)) next[P::ahead];
#pragma unroll
    for (int u = 0; u < P::ahead; ++u) next[u] = p.template fetch<n>(row + u * plan.down, at + u * skip);
#pragma unroll
    for (int u = 0; u < P::ahead; ++u) p.template put<n>(fixed, next[u], at + u * skip);
    row += P::ahead * plan.down;
    at += P::ahead * skip;
  }
  for (; k < place.count; ++k, row += plan.down, at += skip) p.template put<n>(fixed, p.template fetch<n>(row, at), at);
}
/// Over [rows, width]; vector as in reduce_columns.
template <class P>
void walk_columns(const On& on, Index rows, Index width, bool vector, const P& p) {
  constexpr int n = sizeof(typename P::T) == 8 ? 1 : pack<typename P::T>;
  if (rows * width == 0) return;
  const bool by_packs = vector && width % n == 0;
  const ColumnPlan plan = plan_columns(on, 1, rows, width, by_packs ? n : 1, P::resident);
  run(on, dim3(static_cast<unsigned>(plan.blocks())), block, by_packs ? column_walk<n, P> : column_walk<1, P>, plan, p);
}

/// Sums as they are, count of them for each column: P may derive from it.
template <class T, int count>
struct PlainSums {
  using Sum = Accumulator<T>;
  using Part = Sum;
  using Merge = AddUp<count>;
  static constexpr int sets = count;
  struct Nothing {};

  template <int n>
  __device__ Nothing fixed(Index, Index) const {
    return {};
  }
  template <int n, class Fixed>
  __device__ void close(Sum (&)[count][n], const Fixed&, int, Index) const {}
  __device__ Sum part(int, Sum sum, Index) const { return sum; }
};

/// The sums of one block of elements.
template <class Element>
struct ColumnSum : PlainSums<Element, 1> {
  using T = Element;
  using Sum = Accumulator<T>;
  using Nothing = typename PlainSums<T, 1>::Nothing;
  static constexpr int ahead = 4, resident = 4;
  const T* x;

  template <int n>
  __device__ Pack<T, n> fetch(Index, Index at) const {
    return load<n>(x + at);
  }
  template <int n>
  __device__ void add(Sum (&sums)[1][n], Nothing, const Pack<T, n>& v, Index) const {
#pragma unroll
    for (int i = 0; i < n; ++i) sums[0][i] += wide(v.v[i]);
  }
};

}  // namespace trireme::gpu
