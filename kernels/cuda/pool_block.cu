// The tail of a convolution block in one pass over its output: bias, ReLU, max pooling, dropout; and the way back.
#include "kernels/core/kernel.h"
#include "kernels/core/random.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/window.cuh"

namespace trireme::gpu {
namespace {

/// Dropout of one call: which elements stay is a function of (key, sample id, element within the sample).
template <class A>
struct Drop {
  MaskKey key;
  std::uint32_t threshold;
  A scale;
  bool on;

  /// Bit j: whether element first + j of the sample stays, for j < n. Packs of 4 and 8 begin where Philox counters do.
  template <int n>
  __device__ unsigned stays(std::uint64_t id, unsigned first) const {
    unsigned bits = 0;
    for (int j = 0; j < n; j += 4) {
      const auto four = Philox{key()}(id, (first + static_cast<unsigned>(j)) / 4);
      unsigned four_bits = 0;
      for (unsigned k = 0; k < 4; ++k) four_bits |= four[k] >> 8 >= threshold ? 1u << k : 0u;
      bits |= four_bits >> first % 4 << j;
    }
    return bits;
  }
};

/// The largest of x + bias, rounded like the result of a separate kernel.
template <class T, int n>
struct LargestWithBias : Largest<T, n> {
  Accumulator<T> bias[n] = {};
  bool with_bias;

  __device__ LargestWithBias(const T* from) : with_bias(from != nullptr) {
    if (!with_bias) return;
    const Pack<T, n> p = load<n>(from);
    for (int j = 0; j < n; ++j) bias[j] = wide(p.v[j]);
  }
  __device__ void operator()(const Pack<T, n>& v, int cell) {
#pragma unroll
    for (int j = 0; j < n; ++j) this->add(j, with_bias ? wide(rounded<T>(wide(v.v[j]) + bias[j])) : wide(v.v[j]), cell);
    this->empty = false;
  }
};

template <class T, int n>
__global__ void block_kernel(T* y, std::uint8_t* index, const T* x, const T* bias, const Index* sample, Windows s,
                             Drop<Accumulator<T>> drop, unsigned items, Index images) {
  using A = Accumulator<T>;
  const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= items) return;
  const Place p = s.out_place<n>(item);
  for (Index image = blockIdx.y; image < images; image += gridDim.y) {
    LargestWithBias<T, n> largest(bias ? bias + p.channel : nullptr);
    walk_window<n>(s, p, x + image * s.in_size + p.channel, largest);
    const auto id = static_cast<std::uint64_t>(sample ? sample[image] : image);
    const unsigned stays = drop.on ? drop.template stays<n>(id, item * n) : ~0u;
    Pack<T, n> v;
    Pack<std::uint8_t, n> at;
    for (int j = 0; j < n; ++j) {
      const bool passes = !(largest.best[j] <= A(0)) && (stays >> j & 1u) != 0;
      const bool kept = passes || largest.best[j] != largest.best[j];  // NaN is not dropped
      v.v[j] = rounded<T>(kept ? largest.best[j] * drop.scale : A(0));
      at.v[j] = passes ? static_cast<std::uint8_t>(largest.winner[j]) : no_gradient;
    }
    const Index to = image * s.out_size + static_cast<Index>(item) * n;
    store(y + to, v);
    store(index + to, at);
  }
}

/// How backward divides its work. A row is one window of one image. Windows that the image's end cuts short count,
/// although they have no output. One block processes a strip of rows; its threads process adjacent channels.
struct Strips {
  Index rows, strip_rows;
  int windows[3];    ///< of one image along each axis, cut ones included
  Divisor by1, by2;  ///< windows[1], windows[2]
  Index image_windows;
  int lanes;  ///< threads side by side, a power of two: the others of the block take the rows below
};

/// Additions in a row in the element's own accumulator before it is emptied into a double.
constexpr int run_length = 32;

/// Writes the cells of one window: the gradient to the winner, zero to the others.
template <class T, int n>
__device__ inline void spread(T* to, const Windows& s, const int (&o)[3], const Accumulator<T> (&g)[n],
                              const int (&winner)[n]) {
  const int first[3] = {s.axis[0].start(o[0]), s.axis[1].start(o[1]), s.axis[2].start(o[2])};
  const int last0 = min(s.axis[0].in, first[0] + s.axis[0].size), last1 = min(s.axis[1].in, first[1] + s.axis[1].size);
  const int last2 = min(s.axis[2].in, first[2] + s.axis[2].size);
  for (int i0 = first[0]; i0 < last0; ++i0)
    for (int i1 = first[1]; i1 < last1; ++i1) {
      int cell = ((i0 - first[0]) * s.axis[1].size + i1 - first[1]) * s.axis[2].size;
      for (int i2 = first[2]; i2 < last2; ++i2, ++cell) {
        Pack<T, n> v;
        for (int j = 0; j < n; ++j) v.v[j] = rounded<T>(winner[j] == cell ? g[j] : Accumulator<T>(0));
        store(to + s.in_offset(i0, i1, i2), v);
      }
    }
}

/// One window of dx, and its sum onto sum.
template <class T, int n>
__device__ inline void window_back(T* dx, const T* dy, const std::uint8_t* index, const Windows& s,
                                   const Strips& strips, Index row, int channel, Accumulator<T> scale,
                                   Accumulator<T> (&sum)[n]) {
  using A = Accumulator<T>;
  const Index image = row / strips.image_windows;
  auto rest = static_cast<unsigned>(row - image * strips.image_windows);
  int o[3];
  o[2] = static_cast<int>(strips.by2.split(rest));
  o[1] = static_cast<int>(strips.by1.split(rest));
  o[0] = static_cast<int>(rest);
  A g[n] = {};
  int winner[n];
  for (int j = 0; j < n; ++j) winner[j] = no_gradient;
  if (o[0] < s.axis[0].out && o[1] < s.axis[1].out && o[2] < s.axis[2].out) {
    const Index from = image * s.out_size + s.out_offset(o[0], o[1], o[2]) + channel;
    const Pack<T, n> v = load<n>(dy + from);
    const Pack<std::uint8_t, n> at = load<n>(index + from);
    for (int j = 0; j < n; ++j) {
      g[j] = wide(rounded<T>(wide(v.v[j]) * scale));
      winner[j] = at.v[j];
      sum[j] += winner[j] == no_gradient ? A(0) : g[j];
    }
  }
  spread<T, n>(dx + image * s.in_size + channel, s, o, g, winner);
}

/// dx; parts[strip, channel], if given: the sum of dx in the strip.
template <class T, int n>
__global__ void block_backward_kernel(T* dx, double* parts, const T* dy, const std::uint8_t* index, Windows s,
                                      Strips strips, Accumulator<T> scale) {
  __shared__ double shared[block * n];
  const int lane = static_cast<int>(threadIdx.x) % strips.lanes, below = static_cast<int>(threadIdx.x) / strips.lanes;
  const int step = block / strips.lanes;
  const int channel = (static_cast<int>(blockIdx.x) * strips.lanes + lane) * n;
  const Index begin = blockIdx.y * strips.strip_rows, end = min(strips.rows, begin + strips.strip_rows);
  double total[n] = {};
  for (Index row = begin + below; channel < s.channels && row < end;) {
    Accumulator<T> sum[n] = {};
    for (int i = 0; i < run_length && row < end; ++i, row += step)
      window_back<T, n>(dx, dy, index, s, strips, row, channel, scale, sum);
    for (int j = 0; j < n; ++j) total[j] += static_cast<double>(sum[j]);
  }
  if (parts == nullptr) return;
  for (int j = 0; j < n; ++j) shared[j * block + static_cast<int>(threadIdx.x)] = total[j];
  for (int half = step / 2; half > 0; half /= 2) {
    __syncthreads();
    if (below < half)
      for (int j = 0; j < n; ++j) {
        double* mine = shared + j * block + threadIdx.x;
        *mine += mine[half * strips.lanes];
      }
  }
  if (below == 0 && channel < s.channels)
    for (int j = 0; j < n; ++j)
      parts[blockIdx.y * static_cast<Index>(s.channels) + channel + j] = shared[j * block + lane];
}

template <class T>
void forward(const On& on, const PoolShape& s, const View& y, const View& index, const View& x, const View& bias,
             const View& sample, double p, MaskKey key) {
  using A = Accumulator<T>;
  constexpr int n = pack<T>;
  const Drop<A> drop{key, drop_threshold(p), static_cast<A>(1 / (1 - p)), p > 0};
  const bool vector = s.channels % n == 0 && aligned(y.data, x.data, bias.data) && packed<n>(index.as<std::uint8_t>());
  const Index width = vector ? n : 1, items = s.out_cells() * s.channels / width;
  const ImageGrid grid(items, s.n);
  run(on, grid.blocks, grid.threads, vector ? block_kernel<T, n> : block_kernel<T, 1>, y.as<T>(),
      index.as<std::uint8_t>(), x.as<const T>(), bias.as<const T>(), sample.as<const Index>(),
      windows(s, width, on.op()), drop, static_cast<unsigned>(items), s.n);
}

void bias_relu_pool_dropout(View y, View index, View x, View bias, View sample, const PoolOptions& o, double p,
                            MaskKey key) {
  const PoolShape s = pool_block_shape(y, index, x, bias, sample, o, p);
  if (y.numel() == 0) return;
  const On on(y.device, kernel::BiasReluPoolDropout::name);
  dispatch_device_float(x.dtype, on.op(),
                        [&](auto t) { forward<decltype(t)>(on, s, y, index, x, bias, sample, p, key); });
}

Strips make_strips(const PoolShape& s, Index packs) {
  Strips t{};
  for (std::size_t d = 0; d < 3; ++d) t.windows[d] = static_cast<int>(ceil_div(s.in[d], s.stride[d]));
  t.image_windows = static_cast<Index>(t.windows[0]) * t.windows[1] * t.windows[2];
  t.rows = s.n * t.image_windows;
  t.by1 = Divisor(t.windows[1]);
  t.by2 = Divisor(t.windows[2]);
  t.lanes = static_cast<int>(std::min<Index>(std::bit_ceil(static_cast<std::uint64_t>(packs)), warp));
  // About two thousand blocks fill any card.
  constexpr Index blocks = 2048;
  const Index tiles = ceil_div(packs, t.lanes);
  t.strip_rows = std::max<Index>(block / t.lanes, ceil_div(t.rows, std::max<Index>(1, blocks / tiles)));
  return t;
}

template <class T>
void backward(const On& on, const PoolShape& s, const View& dx, const View& dbias, const View& dy, const View& index,
              double p, bool accumulate_bias) {
  constexpr int n = pack<T>;
  const bool vector = s.channels % n == 0 && aligned(dx.data, dy.data) && packed<n>(index.as<const std::uint8_t>());
  const Index width = vector ? n : 1;
  const Strips t = make_strips(s, s.channels / width);
  const Index strips = ceil_div(t.rows, t.strip_rows);
  const Scratch parts(on, dbias ? static_cast<std::size_t>(strips * s.channels) * sizeof(double) : 0);
  const dim3 blocks(static_cast<unsigned>(ceil_div(s.channels / width, t.lanes)), static_cast<unsigned>(strips));
  run(on, blocks, block, vector ? block_backward_kernel<T, n> : block_backward_kernel<T, 1>, dx.as<T>(),
      parts.as<double>(), dy.as<const T>(), index.as<const std::uint8_t>(), windows(s, width, on.op()), t,
      static_cast<Accumulator<T>>(1 / (1 - p)));
  if (dbias) sum_parts(on, dbias, parts.as<const double>(), strips, accumulate_bias);
}

void bias_relu_pool_dropout_backward(View dx, View dbias, View dy, View index, const PoolOptions& o, double p,
                                     bool accumulate_bias) {
  const PoolShape s = pool_block_backward_shape(dx, dbias, dy, index, o, p);
  const On on(dx.device, kernel::BiasReluPoolDropoutBackward::name);
  if (dx.numel() == 0) {
    if (dbias) sum_parts(on, dbias, nullptr, 0, accumulate_bias);
    return;
  }
  dispatch_device_float(dx.dtype, on.op(),
                        [&](auto t) { backward<decltype(t)>(on, s, dx, dbias, dy, index, p, accumulate_bias); });
}

const Kernel<kernel::BiasReluPoolDropout> forward_cuda{DeviceKind::cuda, bias_relu_pool_dropout};
const Kernel<kernel::BiasReluPoolDropoutBackward> backward_cuda{DeviceKind::cuda, bias_relu_pool_dropout_backward};

}  // namespace
}  // namespace trireme::gpu
