// CopyBox and Permute: kernels that move elements of any type, by size alone.
#include "kernels/contracts/move.h"

#include "kernels/core/kernel.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/plans/moves.h"

namespace trireme::gpu {
namespace {

/// Axes as kernels take them, outermost first.
struct Walk {
  int rank = 0;
  LongDivisor extent[Shape::max_rank];
  Index to_step[Shape::max_rank], from_step[Shape::max_rank];

  explicit Walk(const Axes& axes) : rank(axes.rank) {
    for (int i = 0; i < rank; ++i)
      extent[i] = LongDivisor(axes.extent[i]), to_step[i] = axes.to_step[i], from_step[i] = axes.from_step[i];
  }
  /// Adds to `to` and `from` where item k lies.
  __device__ void place(Index k, Index& to, Index& from) const {
    for (int i = rank - 1; i > 0; --i) {
      const Index rest = extent[i].quotient(k), at = k - rest * extent[i].by();
      to += at * to_step[i], from += at * from_step[i], k = rest;
    }
    if (rank > 0) to += k * to_step[0], from += k * from_step[0];
  }
};

constexpr int under_way = 4;  ///< units that a thread has read and not yet written

/// Unit i of all runs, one after the other: `run` units at each place.
template <class U>
__global__ void move_runs(U* to, const U* from, Index n, LongDivisor run, Walk walk) {
  for (Index i = first_item(); i < n; i += under_way * item_step()) {
    U unit[under_way];
    Index target[under_way];
    for (int k = 0; k < under_way; ++k)
      if (const Index at = i + k * item_step(); at < n) {
        const Index place = run.quotient(at), column = at - place * run.by();
        Index source = column;
        target[k] = column;
        walk.place(place, target[k], source);
        unit[k] = from[source];
      }
    for (int k = 0; k < under_way; ++k)
      if (i + k * item_step() < n) to[target[k]] = unit[k];
  }
}

/// Moves runs of so many elements of `size` bytes, in the widest units that every run and step is a multiple of.
void move(const On& on, char* to, const char* from, Index run_length, Axes outer, Index size) {
  auto all = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | 16;
  all |= static_cast<std::uintptr_t>(run_length * size);
  for (int i = 0; i < outer.rank; ++i) all |= static_cast<std::uintptr_t>(outer.to_step[i] * size);
  for (int i = 0; i < outer.rank; ++i) all |= static_cast<std::uintptr_t>(outer.from_step[i] * size);
  const auto unit = static_cast<Index>(all & -all);
  for (int i = 0; i < outer.rank; ++i)
    outer.to_step[i] = outer.to_step[i] * size / unit, outer.from_step[i] = outer.from_step[i] * size / unit;
  const Index per_run = run_length * size / unit, n = per_run * outer.count();
  const auto launch = [&](auto u) {
    using U = decltype(u);
    run(on, blocks_for(on, ceil_div(n, under_way)), block, move_runs<U>, reinterpret_cast<U*>(to),
        reinterpret_cast<const U*>(from), n, LongDivisor(per_run), Walk(outer));
  };
  switch (unit) {
    case 1: return launch(std::uint8_t{});
    case 2: return launch(std::uint16_t{});
    case 4: return launch(std::uint32_t{});
    case 8: return launch(std::uint64_t{});
    default: return launch(Pack<std::uint32_t, 4>{});
  }
}

void copy_box(View to, const Shape& to_at, View from, const Shape& from_at, const Shape& extent) {
  const Runs runs = plan_copy_box(to, to_at, from, from_at, extent);
  if (runs.run == 0) return;
  const On on(to.device, kernel::CopyBox::name);
  const Index size = size_of(to.dtype);
  move(on, to.as<char>() + runs.to_first * size, from.as<const char>() + runs.from_first * size, runs.run, runs.outer,
       size);
}

/// Sides of a square tile. Where one side of the matrix is shorter, the tile is longer along the other.
template <class T>
constexpr int side = sizeof(T) == 8 ? 32 : 64;
template <class T>
constexpr int room = (side<T> + 31) * side<T>;  ///< words of a tile, with what keeps banks apart

/// y[i, j] = x[j, i], i < height and j < width, at every place of the outer axes: tile by tile through shared memory.
struct Transposition {
  Index height, width, y_step, x_step;
  Divisor tile_height, tile_width;
  LongDivisor tiles_high, tiles_wide;
  int shared_i, shared_j;  ///< steps in shared memory
  Walk outer;

  __device__ int word(unsigned i, unsigned j) const {
    return static_cast<int>(i) * shared_i + static_cast<int>(j) * shared_j;
  }
};

template <class T>
__global__ void transpose_tile(T* y, const T* x, Transposition t) {
  using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  __shared__ Word words[room<T>];
  const Index tile = blockIdx.x, row = t.tiles_wide.quotient(tile), place = t.tiles_high.quotient(row);
  const Index top = (row - place * t.tiles_high.by()) * t.tile_height.by();
  const Index left = (tile - row * t.tiles_wide.by()) * t.tile_width.by();
  Index to = top * t.y_step + left, from = left * t.x_step + top;
  t.outer.place(place, to, from);
  const Index rows = t.height - top, columns = t.width - left;  // what is left of the matrix
  const unsigned area = t.tile_height.by() * t.tile_width.by();
  for (unsigned first = threadIdx.x; first < area; first += under_way * block) {
    T v[under_way];
    int at[under_way];
    for (unsigned k = 0; k < under_way; ++k) {
      unsigned j = first + k * block;
      const unsigned i = t.tile_height.split(j);
      at[k] = j < t.tile_width.by() && i < rows && j < columns ? t.word(i, j) : -1;
      if (at[k] >= 0) v[k] = x[from + j * t.x_step + i];
    }
    for (unsigned k = 0; k < under_way; ++k)
      if (at[k] >= 0) words[at[k]] = v[k];
  }
  __syncthreads();
  for (unsigned e = threadIdx.x; e < area; e += block) {
    unsigned i = e;
    const unsigned j = t.tile_width.split(i);
    if (i < rows && j < columns) y[to + i * t.y_step + j] = static_cast<T>(words[t.word(i, j)]);
  }
}

template <class T>
void transpose(const On& on, const View& y, const View& x, Transposition t, Index places) {
  Index high = std::min<Index>(t.height, side<T>), wide = std::min<Index>(t.width, side<T>);
  const auto stretched = [](Index length, Index other) {
    return std::min<Index>(length, side<T> * side<T> / other / warp * warp);
  };
  if (high < side<T>)
    wide = stretched(t.width, high);
  else if (wide < side<T>)
    high = stretched(t.height, wide);
  // Threads that run along the short side of a tile reach the next line of the long side at the next banks.
  const Index shorter = std::min(high, wide), bank = ceil_div(warp, shorter);
  const Index pitch = std::max(high, wide) + (bank - std::max(high, wide) % warp + warp) % warp;
  t.tile_height = Divisor(high), t.tile_width = Divisor(wide);
  t.tiles_high = LongDivisor(ceil_div(t.height, high)), t.tiles_wide = LongDivisor(ceil_div(t.width, wide));
  t.shared_i = static_cast<int>(wide >= high ? pitch : 1), t.shared_j = static_cast<int>(wide >= high ? 1 : pitch);
  const dim3 blocks(static_cast<unsigned>(places * t.tiles_high.by() * t.tiles_wide.by()));
  run(on, blocks, block, transpose_tile<T>, y.as<T>(), x.as<const T>(), t);
}

constexpr Index small_matrix = 128;  ///< fewer elements than this leave most of a block idle

void permute(View y, View x, const Shape& order) {
  Axes axes = plan_permute(y, x, order);
  if (y.numel() == 0) return;
  const On on(y.device, kernel::Permute::name);
  const Index size = size_of(y.dtype);
  const auto rows = [&](Index run_length) { move(on, y.as<char>(), x.as<const char>(), run_length, axes, size); };
  if (axes.rank == 0) return rows(1);
  const int last = axes.rank - 1;
  const Index width = axes.extent[last], x_step = axes.from_step[last];
  if (x_step == 1) {
    axes.erase(last);
    return rows(width);
  }
  const int inner = static_cast<int>(std::find(axes.from_step, axes.from_step + last, 1) - axes.from_step);
  const Index height = axes.extent[inner], y_step = axes.to_step[inner];
  if (height * width < small_matrix) return rows(1);
  axes.erase(last);
  axes.erase(inner);
  const Transposition t{height, width, y_step, x_step, {}, {}, {}, {}, 0, 0, Walk(axes)};
  switch (size) {
    case 1: return transpose<std::uint8_t>(on, y, x, t, axes.count());
    case 2: return transpose<std::uint16_t>(on, y, x, t, axes.count());
    case 4: return transpose<std::uint32_t>(on, y, x, t, axes.count());
    default: return transpose<std::uint64_t>(on, y, x, t, axes.count());
  }
}

const Kernel<kernel::CopyBox> copy_box_cuda{DeviceKind::cuda, copy_box};
const Kernel<kernel::Permute> permute_cuda{DeviceKind::cuda, permute};

}  // namespace
}  // namespace trireme::gpu
