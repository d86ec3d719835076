// CopyBox, Permute, Expand and Take: kernels that move elements of any type, by size alone; and Take's backward.
#include <type_traits>

#include "kernels/contracts/move.h"

#include "kernels/core/kernel.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/ids.cuh"
#include "kernels/cuda/numbers.cuh"

namespace trireme::gpu {
namespace {

using Loop = detail::StridedLoop<2>;
using OuterLoop = DeviceLoop<Index, 2>;

constexpr int under_way = 4;  ///< units that a thread has read and not yet written

/// Unit i of all runs, one after the other: `run` units per iteration.
template <class U>
__global__ void move_runs(U* to, const U* from, Index n, LongDivisor run, OuterLoop outer) {
  for (Index i = first_item(); i < n; i += under_way * item_step()) {
    U unit[under_way];
    Index target[under_way];
    for (int k = 0; k < under_way; ++k)
      if (const Index at = i + k * item_step(); at < n) {
        Index iteration = at;
        const Index column = run.split(iteration);
        const auto [target_run, source_run] = outer.offset(iteration).of;
        target[k] = target_run + column;
        unit[k] = from[source_run + column];
      }
    for (int k = 0; k < under_way; ++k)
      if (i + k * item_step() < n) to[target[k]] = unit[k];
  }
}

/// Moves runs of `run_length` elements of `size` bytes, in the widest units that divide every run and step.
void move(const On& on, char* to, const char* from, Index run_length, Loop outer, Index size) {
  auto all = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | 16;
  all |= static_cast<std::uintptr_t>(run_length * size);
  for (int i = 0; i < outer.rank; ++i)
    for (const Index step : outer.step[i]) all |= static_cast<std::uintptr_t>(step * size);
  const auto unit = static_cast<Index>(all & -all);
  for (int i = 0; i < outer.rank; ++i)
    for (Index& step : outer.step[i]) step = step * size / unit;
  const Index per_run = run_length * size / unit, n = per_run * outer.count();
  const auto launch = [&](auto u) {
    using U = decltype(u);
    run(on, blocks_for(on, ceil_div(n, under_way)), block, move_runs<U>, reinterpret_cast<U*>(to),
        reinterpret_cast<const U*>(from), n, LongDivisor(per_run), OuterLoop(outer));
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
  const detail::BoxCopy box = detail::plan_copy_box(to, to_at, from, from_at, extent);
  if (box.run == 0) return;
  const On on(to.device, kernel::CopyBox::name);
  const Index size = size_of(to.dtype);
  move(on, to.as<char>() + box.to_first * size, from.as<const char>() + box.from_first * size, box.run, box.outer,
       size);
}

/// Sides of a square tile. Where one side of the matrix is shorter, the tile is longer along the other.
template <class T>
constexpr int side = sizeof(T) == 8 ? 32 : 64;
template <class T>
constexpr int room = (side<T> + 31) * side<T>;  ///< words of a tile, with what keeps banks apart

/// y[i, j] = x[j, i], i < height and j < width, in every iteration of the outer loop: tile by tile through shared
/// memory.
struct Transposition {
  Index height, width, y_step, x_step;
  Divisor tile_height, tile_width;
  LongDivisor tiles_high, tiles_wide;
  int shared_i, shared_j;  ///< steps in shared memory
  OuterLoop outer;

  __device__ int word(unsigned i, unsigned j) const {
    return static_cast<int>(i) * shared_i + static_cast<int>(j) * shared_j;
  }
};

template <class T>
__global__ void transpose_tile(T* y, const T* x, Transposition t) {
  using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  __shared__ Word words[room<T>];
  const Index tile = blockIdx.x, row = t.tiles_wide.quotient(tile), iteration = t.tiles_high.quotient(row);
  const Index top = (row - iteration * t.tiles_high.by()) * t.tile_height.by();
  const Index left = (tile - row * t.tiles_wide.by()) * t.tile_width.by();
  const auto [to_first, from_first] = t.outer.offset(iteration).of;
  const Index to = to_first + top * t.y_step + left, from = from_first + left * t.x_step + top;
  const Index rows = t.height - top, columns = t.width - left;  // the rest of the matrix
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
void transpose(const On& on, const View& y, const View& x, Transposition t, Index iterations) {
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
  t.tile_height = Divisor(high);
  t.tile_width = Divisor(wide);
  t.tiles_high = LongDivisor(ceil_div(t.height, high));
  t.tiles_wide = LongDivisor(ceil_div(t.width, wide));
  t.shared_i = static_cast<int>(wide >= high ? pitch : 1);
  t.shared_j = static_cast<int>(wide >= high ? 1 : pitch);
  const dim3 blocks(static_cast<unsigned>(iterations * t.tiles_high.by() * t.tiles_wide.by()));
  run(on, blocks, block, transpose_tile<T>, y.as<T>(), x.as<const T>(), t);
}

constexpr Index small_matrix = 128;  ///< fewer elements than this leave most of a block idle

void permute(View y, View x, const Shape& order) {
  Loop loop = detail::plan_permute(y, x, order);
  if (y.numel() == 0) return;
  const On on(y.device, kernel::Permute::name);
  const Index size = size_of(y.dtype);
  const auto rows = [&](Index run_length) { move(on, y.as<char>(), x.as<const char>(), run_length, loop, size); };
  if (loop.rank == 0) return rows(1);
  const Index width = loop.extent[0], x_step = loop.step[0][1];
  if (x_step == 1) {
    loop.erase(0);
    return rows(width);
  }
  int inner = loop.rank - 1;
  while (loop.step[inner][1] != 1) --inner;
  const Index height = loop.extent[inner], y_step = loop.step[inner][0];
  if (height * width < small_matrix) return rows(1);
  loop.erase(inner);
  loop.erase(0);
  const Transposition t{height, width, y_step, x_step, {}, {}, {}, {}, 0, 0, OuterLoop(loop)};
  with_bytes(y.dtype, [&](auto u) { transpose<decltype(u)>(on, y, x, t, loop.count()); });
}

/// Bytes, or f32 that are rounded to U.
template <class U, class T>
struct TakeRows {
  U* y;
  const T* x;
  Ids ids;
  Index count, width;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index row = i / width, from = ids.of(row % count);
    if (from < 0) return;
    const T value = x[(row / count * ids.rows + from) * width + i % width];
    if constexpr (std::is_same_v<U, T>)
      y[i] = value;
    else
      y[i] = rounded<U>(value);
  }
};
/// A thread adds up a column, so that the sums come in the order of the ids.
template <class T, class U>
struct AddRows {
  T* dx;
  const U* dy;
  Ids ids;
  Index count, width;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index outer = i / width, column = i % width;
    for (Index k = 0; k < count; ++k) {
      const Index to = ids.of(k);
      if (to < 0) continue;
      T& sum = dx[(outer * ids.rows + to) * width + column];
      sum = rounded<T>(wide(sum) + wide(dy[(outer * count + k) * width + column]));
    }
  }
};

void expand(View y, View x) {
  Loop loop = detail::plan_expand(y, x);
  const On on(y.device, kernel::Expand::name);
  Index run = 1;
  if (loop.rank > 0 && loop.step[0][1] == 1) {
    run = loop.extent[0];
    loop.erase(0);
  }
  move(on, y.as<char>(), x.as<const char>(), run, loop, size_of(y.dtype));
}

void take(View y, View x, View ids) {
  detail::check_take(y, x, ids, kernel::Take::name);
  const On on(y.device, kernel::Take::name);
  const Ids rows{ids.as<const Index>(), x.shape[1], on.fault()};
  if (y.dtype != x.dtype)
    return dispatch_device_float(y.dtype, kernel::Take::name, [&](auto u) {
      using U = decltype(u);
      each<1>(on, y.numel(), false, TakeRows<U, float>{y.as<U>(), x.as<const float>(), rows, y.shape[1], x.shape[2]});
    });
  with_bytes(x.dtype, [&](auto u) {
    using U = decltype(u);
    each<1>(on, y.numel(), false, TakeRows<U, U>{y.as<U>(), x.as<const U>(), rows, y.shape[1], x.shape[2]});
  });
}

void take_backward(View dx, View dy, View ids) {
  constexpr auto op = kernel::TakeBackward::name;
  detail::check_take(dy, dx, ids, op);
  const On on(dx.device, op);
  const Ids rows{ids.as<const Index>(), dx.shape[1], on.fault()};
  const auto add = [&]<class T, class U>(T, U) {
    each<1>(on, dx.shape[0] * dx.shape[2], false,
            AddRows<T, U>{dx.as<T>(), dy.as<const U>(), rows, dy.shape[1], dx.shape[2]});
  };
  if (dx.dtype == dy.dtype) return dispatch_device_float(dx.dtype, op, [&](auto t) { add(t, t); });
  dispatch_device_float(dy.dtype, op, [&](auto u) { add(float{}, u); });
}

const Kernel<kernel::Take> take_cuda{DeviceKind::cuda, take};
const Kernel<kernel::TakeBackward> take_backward_cuda{DeviceKind::cuda, take_backward};
const Kernel<kernel::CopyBox> copy_box_cuda{DeviceKind::cuda, copy_box};
const Kernel<kernel::Expand> expand_cuda{DeviceKind::cuda, expand};
const Kernel<kernel::Permute> permute_cuda{DeviceKind::cuda, permute};

}  // namespace
}  // namespace trireme::gpu
