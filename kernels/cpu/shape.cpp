// CopyBox, Permute, Expand and Take: kernels that move elements of any type, by size alone; and Take's backward.
#include "kernels/contracts/move.h"

#include <cstring>

#include "kernels/core/kernel.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector.h"
#include "kernels/plans/strided_loop.h"

namespace trireme {
namespace {

using Loop = detail::StridedLoop<2>;

void copy_box(View to, const Shape& to_at, View from, const Shape& from_at, const Shape& extent) {
  const detail::BoxCopy box = detail::plan_copy_box(to, to_at, from, from_at, extent);
  if (box.run == 0) return;
  const auto size = static_cast<Index>(size_of(to.dtype));
  parallel_for(box.outer.count(), box.run * size / 4 + 8, [&](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      auto [a, b] = box.outer.offset(k);
      std::memcpy(to.as<char>() + (box.to_first + a) * size, from.as<char>() + (box.from_first + b) * size,
                  static_cast<std::size_t>(box.run * size));
    }
  });
}

template <class T>
void move_rows(T* y, const T* x, Index count, Index width, const Loop& outer) {
  parallel_for(count, width + 8, [=](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      auto [a, b] = outer.offset(k);
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

/// y[a][b] = x[b][a] for every outer iteration: tiles that keep both sides' cache lines.
template <class T>
void transpose(T* y, Index a, Index y_step, const T* x, Index b, Index x_step, Index count, const Loop& outer) {
  constexpr Index tile = 16;
  Index strips = (a + tile - 1) / tile;
  parallel_for(count * strips, b * tile, [=](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      auto [to, from] = outer.offset(k / strips);
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
void permute_as(T* y, const T* x, Loop loop) {
  if (loop.rank == 0) {
    *y = *x;
    return;
  }
  const Index width = loop.extent[0], step = loop.step[0][1];
  loop.erase(0);
  if (step == 1) return move_rows(y, x, loop.count(), width, loop);
  int inner = loop.rank - 1;
  while (loop.step[inner][1] != 1) --inner;
  const Index height = loop.extent[inner], y_step = loop.step[inner][0];
  loop.erase(inner);
  transpose(y, height, y_step, x, width, step, loop.count(), loop);
}

void permute(View y, View x, const Shape& order) {
  const Loop loop = detail::plan_permute(y, x, order);
  if (y.numel() == 0) return;
  switch (size_of(y.dtype)) {
    case 1: return permute_as(y.as<std::uint8_t>(), x.as<const std::uint8_t>(), loop);
    case 2: return permute_as(y.as<std::uint16_t>(), x.as<const std::uint16_t>(), loop);
    case 4: return permute_as(y.as<std::uint32_t>(), x.as<const std::uint32_t>(), loop);
    default: return permute_as(y.as<std::uint64_t>(), x.as<const std::uint64_t>(), loop);
  }
}

template <class T>
void expand_as(T* y, const T* x, Loop loop) {
  if (loop.rank == 0) {
    *y = *x;
    return;
  }
  const Index width = loop.extent[0], step = loop.step[0][1];
  loop.erase(0);
  if (step == 1) return move_rows(y, x, loop.count(), width, loop);
  parallel_for(loop.count(), width + 8, [=](Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
      auto [a, b] = loop.offset(k);
      std::fill_n(y + a, width, x[b]);
    }
  });
}

void expand(View y, View x) {
  const Loop loop = detail::plan_expand(y, x);
  switch (size_of(y.dtype)) {
    case 1: return expand_as(y.as<std::uint8_t>(), x.as<const std::uint8_t>(), loop);
    case 2: return expand_as(y.as<std::uint16_t>(), x.as<const std::uint16_t>(), loop);
    case 4: return expand_as(y.as<std::uint32_t>(), x.as<const std::uint32_t>(), loop);
    default: return expand_as(y.as<std::uint64_t>(), x.as<const std::uint64_t>(), loop);
  }
}

/// The numbers, each below `rows`.
const Index* checked_ids(const View& ids, Index rows, std::string_view op) {
  const auto* id = ids.as<const Index>();
  for (Index i = 0; i < ids.numel(); ++i)
    check(id[i] >= 0 && id[i] < rows, ErrorKind::data, op, "id {} is {}, expected one in [0, {})", i, id[i], rows);
  return id;
}

/// Rows of f32, rounded to y's type.
void take_rounded(View y, View x, const Index* id) {
  const Index rows = x.shape[1], count = y.shape[1], width = x.shape[2];
  dispatch_device_float(y.dtype, kernel::Take::name, [&](auto t) {
    using T = decltype(t);
    sweep(x.shape[0] * count, width, [=, to = y.as<T>(), from = x.as<const float>()](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const float* const row = from + (i / count * rows + id[i % count]) * width;
#pragma omp simd
        for (Index c = 0; c < width; ++c) put(to[i * width + c], row[c]);
      }
    });
  });
}

void take(View y, View x, View ids) {
  detail::check_take(y, x, ids, kernel::Take::name);
  const Index rows = x.shape[1], count = y.shape[1], bytes = x.shape[2] * size_of(x.dtype);
  const Index* id = checked_ids(ids, rows, kernel::Take::name);
  if (bytes == 0) return;
  if (y.dtype != x.dtype) return take_rounded(y, x, id);
  parallel_for(x.shape[0] * count, bytes / 4 + 8,
               [=, to = y.as<char>(), from = x.as<const char>()](Index begin, Index end) {
                 for (Index i = begin; i < end; ++i)
                   std::memcpy(to + i * bytes, from + (i / count * rows + id[i % count]) * bytes,
                               static_cast<std::size_t>(bytes));
               });
}

void take_backward(View dx, View dy, View ids) {
  constexpr auto op = kernel::TakeBackward::name;
  detail::check_take(dy, dx, ids, op);
  const Index rows = dx.shape[1], count = dy.shape[1], width = dx.shape[2];
  const Index* id = checked_ids(ids, rows, op);
  constexpr Index most = 64;  // columns that a thread adds up at a time: all threads read the same ids
  const Index blocks = (width + most - 1) / most;
  const auto add = [&]<class T, class U>(T, U) {
    parallel_for(dx.shape[0] * blocks, count * std::min(width, most),
                 [=, to = dx.as<T>(), from = dy.as<const U>()](Index begin, Index end) {
                   for (Index k = begin; k < end; ++k) {
                     const Index outer = k / blocks, first = k % blocks * most, n = std::min(width - first, most);
                     for (Index i = 0; i < count; ++i) {
                       T* sum = to + (outer * rows + id[i]) * width + first;
                       const U* more = from + (outer * count + i) * width + first;
                       for (Index c = 0; c < n; ++c)
                         put(sum[c], static_cast<Accumulator<T>>(sum[c]) + static_cast<Accumulator<T>>(more[c]));
                     }
                   }
                 });
  };
  if (dx.dtype == dy.dtype) return dispatch_float(dx.dtype, op, [&](auto t) { add(t, t); });
  dispatch_device_float(dy.dtype, op, [&](auto u) { add(float{}, u); });
}

const Kernel<kernel::Take> take_cpu{DeviceKind::cpu, take};
const Kernel<kernel::TakeBackward> take_backward_cpu{DeviceKind::cpu, take_backward};
const Kernel<kernel::CopyBox> copy_box_cpu{DeviceKind::cpu, copy_box};
const Kernel<kernel::Expand> expand_cpu{DeviceKind::cpu, expand};
const Kernel<kernel::Permute> permute_cpu{DeviceKind::cpu, permute};

}  // namespace
}  // namespace trireme
