// CopyBox and Permute: kernels that move elements of any type, by size alone.
#include "kernels/shape.h"

#include <cstring>

#include "kernels/cpu/parallel.h"
#include "kernels/kernel.h"

namespace trireme {
namespace {

/// Distance in elements between neighbours along each axis of a dense tensor.
Shape steps_of(const Shape& s) {
  Shape steps = s;
  for (int i = 0; i < s.rank(); ++i) steps[i] = s.product(i + 1, s.rank());
  return steps;
}

void copy_box(View to, const Shape& to_at, View from, const Shape& from_at, const Shape& extent) {
  constexpr auto op = kernel::CopyBox::name;
  int rank = extent.rank();
  check(to.dtype == from.dtype, op, "got {} for {}: types must be equal", from.dtype, to.dtype);
  check(to.shape.rank() == rank && from.shape.rank() == rank && to_at.rank() == rank && from_at.rank() == rank, op,
        "got {} at {} to {} at {}, box {}: ranks must be equal", from.shape, from_at, to.shape, to_at, extent);
  for (int i = 0; i < rank; ++i)
    check(extent[i] >= 0 && to_at[i] >= 0 && from_at[i] >= 0 && to_at[i] + extent[i] <= to.shape[i] &&
              from_at[i] + extent[i] <= from.shape[i],
          op, "a box of {} does not fit from {} at {} to {} at {}", extent, from.shape, from_at, to.shape, to_at);
  if (extent.numel() == 0) return;
  Shape to_step = steps_of(to.shape), from_step = steps_of(from.shape);
  // Axes [0, outer) are walked; the rest is one contiguous run on both sides.
  int outer = rank;
  Index run = 1;
  for (bool whole = true; outer > 0 && whole; --outer) {
    run *= extent[outer - 1];
    whole = extent[outer - 1] == to.shape[outer - 1] && extent[outer - 1] == from.shape[outer - 1];
  }
  auto size = static_cast<Index>(size_of(to.dtype));
  Index to_first = 0, from_first = 0;
  for (int i = 0; i < rank; ++i) to_first += to_at[i] * to_step[i], from_first += from_at[i] * from_step[i];
  parallel_for(extent.product(0, outer), run * size / 4 + 8, [&](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      Index a = to_first, b = from_first, rest = k;
      for (int i = outer - 1; i >= 0; --i) {
        Index at = rest % extent[i];
        rest /= extent[i], a += at * to_step[i], b += at * from_step[i];
      }
      std::memcpy(to.as<char>() + a * size, from.as<char>() + b * size, static_cast<std::size_t>(run * size));
    }
  });
}

/// y's axes with their steps in y and in x; those of extent 1 are left out and neighbours merged.
struct Axes {
  int rank = 0;
  Index extent[Shape::max_rank], y_step[Shape::max_rank], x_step[Shape::max_rank];
  void erase(int i) {
    --rank;
    for (; i < rank; ++i) extent[i] = extent[i + 1], y_step[i] = y_step[i + 1], x_step[i] = x_step[i + 1];
  }
};

Axes plan(const Shape& y, const Shape& x, const Shape& order) {
  Shape y_step = steps_of(y), x_step = steps_of(x);
  Axes axes;
  for (int i = 0; i < y.rank(); ++i) {
    if (y[i] == 1) continue;
    Index step = x_step[static_cast<int>(order[i])];
    int k = axes.rank - 1;
    if (k >= 0 && axes.x_step[k] == step * y[i]) {
      axes.extent[k] *= y[i], axes.y_step[k] = y_step[i], axes.x_step[k] = step;
      continue;
    }
    axes.extent[axes.rank] = y[i], axes.y_step[axes.rank] = y_step[i], axes.x_step[axes.rank] = step;
    ++axes.rank;
  }
  return axes;
}

/// Where item k of the (row-major) outer axes lies.
std::pair<Index, Index> place(const Axes& outer, Index k) {
  Index y = 0, x = 0;
  for (int i = outer.rank - 1; i >= 0; --i) {
    Index at = k % outer.extent[i];
    k /= outer.extent[i], y += at * outer.y_step[i], x += at * outer.x_step[i];
  }
  return {y, x};
}

template <class T>
void move_rows(T* y, const T* x, Index count, Index width, const Axes& outer) {
  parallel_for(count, width + 8, [=](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      auto [a, b] = place(outer, k);
      std::copy_n(x + b, width, y + a);
    }
  });
}

/// Sixteen numbers of 32 bits, transposed in registers: y[i * y_step + j] = x[j * x_step + i].
void transpose_4x4(std::uint32_t* y, Index y_step, const std::uint32_t* x, Index x_step) {
  using Four = std::uint32_t __attribute__((vector_size(16), aligned(4)));
  Four r[4];
  for (Index j = 0; j < 4; ++j) std::memcpy(&r[j], x + j * x_step, sizeof(Four));
  const Four a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Four c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7), d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const Four out[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                       __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (Index i = 0; i < 4; ++i) std::memcpy(y + i * y_step, &out[i], sizeof(Four));
}

/// y[i][j] = x[j][i] for a tile of rows x columns.
void transpose_tile(std::uint32_t* y, Index rows, Index y_step, const std::uint32_t* x, Index columns, Index x_step) {
  Index i = 0;
  for (; i + 4 <= rows; i += 4) {
    Index j = 0;
    for (; j + 4 <= columns; j += 4) transpose_4x4(y + i * y_step + j, y_step, x + j * x_step + i, x_step);
    for (; j < columns; ++j)
      for (Index k = i; k < i + 4; ++k) y[k * y_step + j] = x[j * x_step + k];
  }
  for (; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) y[i * y_step + j] = x[j * x_step + i];
}

/// y[a][b] = x[b][a] for every outer place: tiles that keep both sides' cache lines.
template <class T>
void transpose(T* y, Index a, Index y_step, const T* x, Index b, Index x_step, Index count, const Axes& outer) {
  constexpr Index tile = 16;
  Index strips = (a + tile - 1) / tile;
  parallel_for(count * strips, b * tile, [=](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      auto [to, from] = place(outer, k / strips);
      Index first = k % strips * tile, last = std::min(first + tile, a);
      for (Index column = 0; column < b; column += tile) {
        Index stop = std::min(column + tile, b);
        if constexpr (std::is_same_v<T, std::uint32_t>) {
          transpose_tile(y + to + first * y_step + column, last - first, y_step, x + from + column * x_step + first,
                         stop - column, x_step);
        } else {
          for (Index i = first; i < last; ++i)
            for (Index j = column; j < stop; ++j) y[to + i * y_step + j] = x[from + j * x_step + i];
        }
      }
    }
  });
}

template <class T>
void permute_as(T* y, const T* x, Axes axes) {
  if (axes.rank == 0) {
    *y = *x;
    return;
  }
  int last = axes.rank - 1;
  Index width = axes.extent[last], step = axes.x_step[last];
  axes.erase(last);
  Index count = 1;
  for (int i = 0; i < axes.rank; ++i) count *= axes.extent[i];
  if (step == 1) return move_rows(y, x, count, width, axes);
  int inner = 0;
  while (axes.x_step[inner] != 1) ++inner;
  Index height = axes.extent[inner], y_step = axes.y_step[inner];
  axes.erase(inner);
  transpose(y, height, y_step, x, width, step, count / height, axes);
}

void permute(View y, View x, const Shape& order) {
  constexpr auto op = kernel::Permute::name;
  int rank = x.shape.rank();
  unsigned seen = 0;
  bool ok = order.rank() == rank && y.shape.rank() == rank && y.dtype == x.dtype;
  for (int i = 0; ok && i < rank; ++i) {
    ok = order[i] >= 0 && order[i] < rank && y.shape[i] == x.shape[static_cast<int>(order[i])];
    if (ok) seen |= 1u << order[i];
  }
  check(ok && seen == (1u << rank) - 1, op, "cannot reorder {} {} by {} into {} {}", x.dtype, x.shape, order, y.dtype,
        y.shape);
  if (y.numel() == 0) return;
  Axes axes = plan(y.shape, x.shape, order);
  switch (size_of(y.dtype)) {
    case 1: return permute_as(y.as<std::uint8_t>(), x.as<const std::uint8_t>(), axes);
    case 2: return permute_as(y.as<std::uint16_t>(), x.as<const std::uint16_t>(), axes);
    case 4: return permute_as(y.as<std::uint32_t>(), x.as<const std::uint32_t>(), axes);
    default: return permute_as(y.as<std::uint64_t>(), x.as<const std::uint64_t>(), axes);
  }
}

const Kernel<kernel::CopyBox> copy_box_cpu{DeviceKind::cpu, copy_box};
const Kernel<kernel::Permute> permute_cpu{DeviceKind::cpu, permute};

}  // namespace
}  // namespace trireme
