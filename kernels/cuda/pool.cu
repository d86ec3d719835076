// Max and average pooling. Each thread computes a pack of channels of one output. In backward it computes a pack of one
// input cell from all windows over the cell, so no two threads add to the same element.
#include "kernels/core/kernel.h"
#include "kernels/cuda/window.cuh"

namespace trireme::gpu {
namespace {

template <class T, class I, int n>
__global__ void max_pool_kernel(T* y, I* index, const T* x, Windows s, unsigned items, Index images) {
  const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= items) return;
  const Place p = s.out_place<n>(item);
  for (Index image = blockIdx.y; image < images; image += gridDim.y) {
    Largest<T, n> largest;
    walk_window<n>(s, p, x + image * s.in_size + p.channel, largest);
    Pack<T, n> v;
    Pack<I, n> at;
    for (int j = 0; j < n; ++j) {
      v.v[j] = rounded<T>(largest.best[j]);
      at.v[j] = static_cast<I>(largest.winner[j]);
    }
    const Index to = image * s.out_size + static_cast<Index>(item) * n;
    store(y + to, v);
    store(index + to, at);
  }
}

/// f(output's element offset in its image, window cell, output's place) for the windows over input p, in order.
template <class F>
__device__ inline void for_covering(const Windows& s, const Place& p, F f) {
  const Range r0 = s.axis[0].covering(p.at[0]), r1 = s.axis[1].covering(p.at[1]), r2 = s.axis[2].covering(p.at[2]);
  for (int o0 = r0.first; o0 < r0.last; ++o0) {
    const int w0 = s.axis[0].cell(o0, p.at[0]);
    for (int o1 = r1.first; o1 < r1.last; ++o1) {
      const int w1 = s.axis[1].cell(o1, p.at[1]);
      for (int o2 = r2.first; o2 < r2.last; ++o2) {
        const int w2 = s.axis[2].cell(o2, p.at[2]);
        if (w0 < 0 || w1 < 0 || w2 < 0) continue;
        f(s.out_offset(o0, o1, o2), (w0 * s.axis[1].size + w1) * s.axis[2].size + w2, o0, o1, o2);
      }
    }
  }
}

template <class T, class I, int n>
__global__ void max_pool_backward_kernel(T* dx, const T* dy, const I* index, Windows s, unsigned items, Index images) {
  using A = Accumulator<T>;
  const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= items) return;
  const Place p = s.in_place<n>(item);
  for (Index image = blockIdx.y; image < images; image += gridDim.y) {
    const Index from = image * s.out_size + p.channel;
    A sum[n] = {};
    for_covering(s, p, [&](int output, int cell, int, int, int) {
      const Pack<T, n> g = load<n>(dy + from + output);
      const Pack<I, n> winner = load<n>(index + from + output);
      for (int j = 0; j < n; ++j) sum[j] += static_cast<int>(winner.v[j]) == cell ? wide(g.v[j]) : A(0);
    });
    Pack<T, n> v;
    for (int j = 0; j < n; ++j) v.v[j] = rounded<T>(sum[j]);
    store(dx + image * s.in_size + static_cast<Index>(item) * n, v);
  }
}

/// Sums rows of a window one by one, so that errors do not pile up over all of it.
template <class T, int n>
struct Total {
  Accumulator<T> sum[n] = {}, row[n] = {};

  __device__ void operator()(const Pack<T, n>& v, int) {
    for (int j = 0; j < n; ++j) row[j] += wide(v.v[j]);
  }
  __device__ void next_row() {
    for (int j = 0; j < n; ++j) {
      sum[j] += row[j];
      row[j] = 0;
    }
  }
};

/// By how much the sum of a window is multiplied. whole: cells of the window, when those in the padding count.
template <class A>
__device__ inline A part(const Windows& s, int whole, int o0, int o1, int o2) {
  if (whole > 0) return A(1) / static_cast<A>(whole);
  const int o[3] = {o0, o1, o2};
  A cells = 1;
  for (int d = 0; d < 3; ++d) {
    const Range r = s.axis[d].inside(o[d]);
    cells *= static_cast<A>(max(0, r.last - r.first));
  }
  return A(1) / (cells < A(1) ? A(1) : cells);
}

template <class T, int n>
__global__ void avg_pool_kernel(T* y, const T* x, int whole, Windows s, unsigned items, Index images) {
  const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= items) return;
  const Place p = s.out_place<n>(item);
  const auto scale = part<Accumulator<T>>(s, whole, p.at[0], p.at[1], p.at[2]);
  for (Index image = blockIdx.y; image < images; image += gridDim.y) {
    Total<T, n> total;
    walk_window<n>(s, p, x + image * s.in_size + p.channel, total);
    Pack<T, n> v;
    for (int j = 0; j < n; ++j) v.v[j] = rounded<T>(total.sum[j] * scale);
    store(y + image * s.out_size + static_cast<Index>(item) * n, v);
  }
}

template <class T, int n>
__global__ void avg_pool_backward_kernel(T* dx, const T* dy, int whole, Windows s, unsigned items, Index images) {
  using A = Accumulator<T>;
  const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= items) return;
  const Place p = s.in_place<n>(item);
  for (Index image = blockIdx.y; image < images; image += gridDim.y) {
    const T* from = dy + image * s.out_size + p.channel;
    A sum[n] = {};
    for_covering(s, p, [&](int output, int, int o0, int o1, int o2) {
      const A scale = part<A>(s, whole, o0, o1, o2);
      const Pack<T, n> g = load<n>(from + output);
      for (int j = 0; j < n; ++j) sum[j] += wide(g.v[j]) * scale;
    });
    Pack<T, n> v;
    for (int j = 0; j < n; ++j) v.v[j] = rounded<T>(sum[j]);
    store(dx + image * s.in_size + static_cast<Index>(item) * n, v);
  }
}

/// Starts kernel(arguments..., Windows, items, images) with a thread per pack of `width` of `elements` an image.
template <class K, class... A>
void start(const On& on, const PoolShape& s, Index elements, Index width, K kernel, const A&... arguments) {
  const ImageGrid grid(elements / width, s.n);
  run(on, grid.blocks, grid.threads, kernel, arguments..., windows(s, width, on.op()),
      static_cast<unsigned>(elements / width), s.n);
}

/// f(I{}) with the type of an index.
template <class F>
void with_index(DType index, F&& f) {
  if (index == DType::i32)
    f(std::int32_t{});
  else
    f(std::uint8_t{});
}

void max_pool(View y, View index, View x, const PoolOptions& o) {
  const PoolShape s = max_pool_shape(x, y, index, o, kernel::MaxPool::name);
  if (y.numel() == 0) return;
  const On on(y.device, kernel::MaxPool::name);
  dispatch_device_float(x.dtype, on.op(), [&]<class T>(T) {
    with_index(index.dtype, [&]<class I>(I) {
      constexpr int n = sizeof(T) == 8 || sizeof(I) > 1 ? 1 : pack<T>;  // windows of more cells than u8 counts are rare
      T* to = y.as<T>();
      I* at = index.as<I>();
      const T* from = x.as<const T>();
      const bool vector = s.channels % n == 0 && packed<n>(to) && packed<n>(at) && packed<n>(from);
      start(on, s, s.out_cells() * s.channels, vector ? n : 1,
            vector ? max_pool_kernel<T, I, n> : max_pool_kernel<T, I, 1>, to, at, from);
    });
  });
}

void max_pool_backward(View dx, View dy, View index, const PoolOptions& o) {
  const PoolShape s = max_pool_shape(dx, dy, index, o, kernel::MaxPoolBackward::name);
  if (dx.numel() == 0) return;
  const On on(dx.device, kernel::MaxPoolBackward::name);
  dispatch_device_float(dx.dtype, on.op(), [&]<class T>(T) {
    with_index(index.dtype, [&]<class I>(I) {
      constexpr int n = sizeof(T) == 8 || sizeof(I) > 1 ? 1 : pack<T>;  // windows of more cells than u8 counts are rare
      T* to = dx.as<T>();
      const T* from = dy.as<const T>();
      const I* at = index.as<const I>();
      const bool vector = s.channels % n == 0 && packed<n>(to) && packed<n>(at) && packed<n>(from);
      start(on, s, s.in_cells() * s.channels, vector ? n : 1,
            vector ? max_pool_backward_kernel<T, I, n> : max_pool_backward_kernel<T, I, 1>, to, from, at);
    });
  });
}

int whole_window(const PoolShape& s, const PoolOptions& o) {
  return o.count_padding ? static_cast<int>(s.window_cells()) : 0;
}

void avg_pool(View y, View x, const PoolOptions& o) {
  const PoolShape s = avg_pool_shape(x, y, o, kernel::AvgPool::name);
  if (y.numel() == 0) return;
  const On on(y.device, kernel::AvgPool::name);
  dispatch_device_float(x.dtype, on.op(), [&]<class T>(T) {
    constexpr int n = sizeof(T) == 8 ? 1 : pack<T>;
    const bool vector = s.channels % n == 0 && aligned(y.data, x.data);
    start(on, s, s.out_cells() * s.channels, vector ? n : 1, vector ? avg_pool_kernel<T, n> : avg_pool_kernel<T, 1>,
          y.as<T>(), x.as<const T>(), whole_window(s, o));
  });
}

void avg_pool_backward(View dx, View dy, const PoolOptions& o) {
  const PoolShape s = avg_pool_shape(dx, dy, o, kernel::AvgPoolBackward::name);
  if (dx.numel() == 0) return;
  const On on(dx.device, kernel::AvgPoolBackward::name);
  dispatch_device_float(dx.dtype, on.op(), [&]<class T>(T) {
    constexpr int n = sizeof(T) == 8 ? 1 : pack<T>;
    const bool vector = s.channels % n == 0 && aligned(dx.data, dy.data);
    start(on, s, s.in_cells() * s.channels, vector ? n : 1,
          vector ? avg_pool_backward_kernel<T, n> : avg_pool_backward_kernel<T, 1>, dx.as<T>(), dy.as<const T>(),
          whole_window(s, o));
  });
}

const Kernel<kernel::MaxPool> max_pool_cuda{DeviceKind::cuda, max_pool};
const Kernel<kernel::MaxPoolBackward> max_pool_backward_cuda{DeviceKind::cuda, max_pool_backward};
const Kernel<kernel::AvgPool> avg_pool_cuda{DeviceKind::cuda, avg_pool};
const Kernel<kernel::AvgPoolBackward> avg_pool_backward_cuda{DeviceKind::cuda, avg_pool_backward};

}  // namespace
}  // namespace trireme::gpu
