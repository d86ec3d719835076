// Pooling windows for kernels: one thread per position of an image and pack of channels.
#pragma once
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/plans/pool_shape.h"

namespace trireme::gpu {

/// Positions [first, last) along an axis.
struct Range {
  int first, last;
};

struct WindowAxis {
  int in, out, size, stride, pad, dilation;
  Divisor by_stride, by_dilation;

  __device__ int start(int o) const { return o * stride - pad; }
  /// Cells of the window at output o that are inside the input.
  __device__ Range inside(int o) const {
    const int from = start(o), room = in - from;
    if (room <= 0) return {0, 0};
    const int before =
        from < 0 ? static_cast<int>(by_dilation.quotient(static_cast<unsigned>(dilation - 1 - from))) : 0;
    const int upto = static_cast<int>(by_dilation.quotient(static_cast<unsigned>(room + dilation - 1)));
    return {before, min(size, upto)};
  }
  /// Outputs whose windows reach over input i; with dilation some of them have no cell there.
  __device__ Range covering(int i) const {
    const int end = i + pad, past = end - (size - 1) * dilation - 1;
    const int first = past < 0 ? 0 : static_cast<int>(by_stride.quotient(static_cast<unsigned>(past))) + 1;
    return {first, min(out, static_cast<int>(by_stride.quotient(static_cast<unsigned>(end))) + 1)};
  }
  /// The window cell of output o that is at input i, or -1.
  __device__ int cell(int o, int i) const {
    auto w = static_cast<unsigned>(i - start(o));
    return by_dilation.split(w) == 0 ? static_cast<int>(w) : -1;
  }
};

/// One place of an image, and the first channel of a pack.
struct Place {
  int at[3], channel;
};

struct Windows {
  WindowAxis axis[3];
  int channels;
  Index in_size, out_size;  ///< elements of one image
  Divisor packs, in1, in2, out1, out2;

  /// Items are places, channels innermost.
  template <int n>
  __device__ Place in_place(unsigned item) const {
    return place<n>(item, in1, in2);
  }
  template <int n>
  __device__ Place out_place(unsigned item) const {
    return place<n>(item, out1, out2);
  }
  __device__ int in_offset(int i0, int i1, int i2) const {
    return ((i0 * axis[1].in + i1) * axis[2].in + i2) * channels;
  }
  __device__ int out_offset(int o0, int o1, int o2) const {
    return ((o0 * axis[1].out + o1) * axis[2].out + o2) * channels;
  }

 private:
  template <int n>
  __device__ Place place(unsigned item, const Divisor& d1, const Divisor& d2) const {
    Place p;
    p.channel = static_cast<int>(packs.split(item)) * n;
    p.at[2] = static_cast<int>(d2.split(item));
    p.at[1] = static_cast<int>(d1.split(item));
    p.at[0] = static_cast<int>(item);
    return p;
  }
};

/// Places in one image are counted in 32 bits.
inline Windows windows(const PoolShape& s, Index width, std::string_view op) {
  Windows w{};
  w.channels = static_cast<int>(s.channels);
  w.in_size = s.in_cells() * s.channels;
  w.out_size = s.out_cells() * s.channels;
  constexpr Index most = std::numeric_limits<std::int32_t>::max() / 2;
  check(std::max(w.in_size, w.out_size) <= most, op, "an image of {} elements; at most {} are possible",
        std::max(w.in_size, w.out_size), Index{most});
  // A larger stride, or dilation of one cell, never takes effect.
  const auto number = [&](Index v) { return static_cast<int>(std::min(v, Index{most})); };
  for (std::size_t d = 0; d < 3; ++d) {
    const int stride = number(s.stride[d]), dilation = number(s.dilation[d]);
    w.axis[d] = {number(s.in[d]),  number(s.out[d]), number(s.window[d]), stride,
                 number(s.pad[d]), dilation,         Divisor(stride),     Divisor(dilation)};
  }
  w.packs = Divisor(s.channels / width);
  w.in1 = Divisor(s.in[1]);
  w.in2 = Divisor(s.in[2]);
  w.out1 = Divisor(s.out[1]);
  w.out2 = Divisor(s.out[2]);
  return w;
}

/// Whether n elements from p on may be read at once.
template <int n, class T>
bool packed(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % sizeof(Pack<T, n>) == 0;
}

/// Threads of a block, and blocks: x for the items of one image, y for images.
struct ImageGrid {
  int threads;
  dim3 blocks;
  ImageGrid(Index items, Index images)
      : threads(static_cast<int>(std::clamp<Index>(ceil_div(items, warp) * warp, warp, block))),
        blocks(static_cast<unsigned>(ceil_div(items, threads)), static_cast<unsigned>(std::min<Index>(images, 65535))) {
  }
};

/// take(pack, window cell) for the cells of one window inside the image, in order; next_row() after each row of them.
/// Several loads are under way at a time. from: the image's first element of this pack of channels.
template <int n, class T, class F>
__device__ inline void walk_window(const Windows& s, const Place& p, const T* from, F& take) {
  constexpr int several = 4;
  const Range r0 = s.axis[0].inside(p.at[0]), r1 = s.axis[1].inside(p.at[1]), r2 = s.axis[2].inside(p.at[2]);
  const int step = s.axis[2].dilation * s.channels;
  for (int w0 = r0.first; w0 < r0.last; ++w0)
    for (int w1 = r1.first; w1 < r1.last; ++w1) {
      const int cell = (w0 * s.axis[1].size + w1) * s.axis[2].size;
      const int row = s.in_offset(s.axis[0].start(p.at[0]) + w0 * s.axis[0].dilation,
                                  s.axis[1].start(p.at[1]) + w1 * s.axis[1].dilation, s.axis[2].start(p.at[2]));
      for (int w2 = r2.first; w2 < r2.last; w2 += several) {
        Pack<T, n> v[several];
#pragma unroll
        for (int j = 0; j < several; ++j)
          if (w2 + j < r2.last) v[j] = load<n>(from + row + (w2 + j) * step);
#pragma unroll
        for (int j = 0; j < several; ++j)
          if (w2 + j < r2.last) take(v[j], cell + w2 + j);
      }
      take.next_row();
    }
}

/// The running maximum of a pack of channels: the first of equal ones, but NaN wins, the last of them.
template <class T, int n>
struct Largest {
  Accumulator<T> best[n];
  int winner[n];
  bool empty = true;

  __device__ Largest() {
    for (int j = 0; j < n; ++j) {
      best[j] = -std::numeric_limits<Accumulator<T>>::infinity();
      winner[j] = 0;
    }
  }
  __device__ void operator()(const Pack<T, n>& v, int cell) {
#pragma unroll
    for (int j = 0; j < n; ++j) add(j, wide(v.v[j]), cell);
    empty = false;
  }
  __device__ void add(int j, Accumulator<T> v, int cell) {
    const bool better = empty || v > best[j] || v != v;
    best[j] = better ? v : best[j];
    winner[j] = better ? cell : winner[j];
  }
  __device__ void next_row() {}
};

}  // namespace trireme::gpu
