// Mixed-scale dense layers: one thread per output, or per element of the block's gradient. For the filter's gradient
// one block of threads per tap and 32 channels, in parts of the positions.
#include "kernels/core/kernel.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/rows.h"
#include "kernels/plans/mixed_scale_shape.h"

namespace trireme::gpu {
namespace {

/// MixedScaleShape for devices.
struct Geometry {
  Index extent[3], begin[3], size[3], channels, outputs, dilation, width;
  int planes;
  explicit Geometry(const MixedScaleShape& s)
      : extent{s.extent[0], s.extent[1], s.extent[2]},
        begin{s.begin[0], s.begin[1], s.begin[2]},
        size{s.size[0], s.size[1], s.size[2]},
        channels(s.channels),
        outputs(s.outputs),
        dilation(s.dilation),
        width(s.width),
        planes(static_cast<int>(s.planes)) {}
  __device__ int taps() const { return planes * 9; }
};
/// Position i of the box.
struct BoxPlace {
  Index n, at[3];
  __device__ BoxPlace(Index i, const Geometry& g) {
    for (int d = 2; d >= 0; --d) {
      at[d] = g.begin[d] + i % g.size[d];
      i /= g.size[d];
    }
    n = i;
  }
};
/// First element of the cell at `side` times tap t's offset from a position; negative outside of the block.
__device__ inline Index cell_at(const Geometry& g, const BoxPlace& p, int t, int side) {
  const int steps[3] = {g.planes == 3 ? t / 9 - 1 : 0, t / 3 % 3 - 1, t % 3 - 1};
  Index cell = p.n;
  for (int d = 0; d < 3; ++d) {
    const Index at = p.at[d] + side * steps[d] * g.dilation;
    if (at < 0 || at >= g.extent[d]) return -1;
    cell = cell * g.extent[d] + at;
  }
  return cell * g.width;
}
__device__ inline Index own_cell(const Geometry& g, const BoxPlace& p) {
  return (((p.n * g.extent[0] + p.at[0]) * g.extent[1] + p.at[1]) * g.extent[2] + p.at[2]) * g.width;
}

template <class T, class W>
struct Layer {
  using A = Accumulator<T>;
  T* block;
  const W* w;
  const void* bias;
  DType bias_type;
  Geometry g;

  /// Taps in the order (row, plane, column), as the CPU adds them.
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index o = i % g.outputs;
    const BoxPlace p(i / g.outputs, g);
    A sum = bias ? number<A>(bias, bias_type, o) : A(0);
    for (int row = 0; row < 3; ++row)
      for (int plane = 0; plane < g.planes; ++plane)
        for (int column = 0; column < 3; ++column) {
          const int t = plane * 9 + row * 3 + column;
          const Index from = cell_at(g, p, t, 1);
          if (from < 0) continue;
          const W* filter = w + (o * g.taps() + t) * g.channels;
          A part = 0;
          for (Index c = 0; c < g.channels; ++c) part += static_cast<A>(wide(filter[c])) * wide(block[from + c]);
          sum += part;
        }
    block[own_cell(g, p) + g.channels + o] = rounded<T>(sum <= 0 ? A(0) : sum);
  }
};

template <class T>
struct Masked {
  Accumulator<T>* gradient;
  const T* block;
  Geometry g;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index at = own_cell(g, BoxPlace(i / g.outputs, g)) + g.channels + i % g.outputs;
    if (wide(block[at]) <= 0) gradient[at] = 0;
  }
};

template <class A, class W>
struct Input {
  A* gradient;
  const W* w;
  Geometry g;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Index c = i % g.channels;
    const BoxPlace p(i / g.channels, g);
    A sum = 0;
    for (Index o = 0; o < g.outputs; ++o)
      for (int t = 0; t < g.taps(); ++t)
        if (const Index from = cell_at(g, p, t, -1); from >= 0)
          sum += static_cast<A>(wide(w[(o * g.taps() + t) * g.channels + c])) * gradient[from + g.channels + o];
    gradient[own_cell(g, p) + c] += sum;
  }
};

/// parts [gridDim.z, outputs * taps, channels]: sums of a part of the box; blockIdx.x is (o, t), blockIdx.y 32
/// channels.
template <class T>
__global__ void __launch_bounds__(block)
    filter_kernel(Accumulator<T>* parts, const T* features, const Accumulator<T>* gradient, Geometry g, Index places) {
  using A = Accumulator<T>;
  constexpr int warps = block / warp;
  __shared__ A shared[warps][warp];
  const int lane = static_cast<int>(threadIdx.x) % warp, below = static_cast<int>(threadIdx.x) / warp;
  const int t = static_cast<int>(blockIdx.x) % g.taps();
  const Index o = blockIdx.x / static_cast<unsigned>(g.taps());
  const Index c = static_cast<Index>(blockIdx.y) * warp + lane;
  const Index begin = places * blockIdx.z / gridDim.z, end = places * (blockIdx.z + 1) / gridDim.z;
  A sum = 0;
  if (c < g.channels)
    for (Index i = begin + below; i < end; i += warps) {
      const BoxPlace p(i, g);
      const Index from = cell_at(g, p, t, 1);
      if (from >= 0) sum += gradient[own_cell(g, p) + g.channels + o] * wide(features[from + c]);
    }
  shared[below][lane] = sum;
  __syncthreads();
  if (below != 0 || c >= g.channels) return;
  for (int i = 1; i < warps; ++i) sum += shared[i][lane];
  parts[(static_cast<Index>(blockIdx.z) * gridDim.x + blockIdx.x) * g.channels + c] = sum;
}
template <class A>
struct AddParts {
  void* dw;
  DType type;
  const A* parts;
  Index size, count;
  bool accumulate;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    double sum = accumulate ? number<double>(dw, type, i) : 0;
    for (Index part = 0; part < count; ++part) sum += static_cast<double>(parts[part * size + i]);
    put_number(dw, type, i, sum);
  }
};
/// parts [gridDim.y, outputs]: sums of the gradient over a part of the box; blockIdx.x is the output.
template <class A>
__global__ void __launch_bounds__(block) bias_kernel(double* parts, const A* gradient, Geometry g, Index places) {
  const Index begin = places * blockIdx.y / gridDim.y, end = places * (blockIdx.y + 1) / gridDim.y;
  double sum = 0;
  for (Index i = begin + threadIdx.x; i < end; i += block)
    sum += static_cast<double>(gradient[own_cell(g, BoxPlace(i, g)) + g.channels + blockIdx.x]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[static_cast<Index>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

/// f(T{}) with the type of a weight for a block of type B: its own, or the type of its sums.
template <class B, class F>
void dispatch_weight(DType type, F&& f) {
  type == dtype_of<B>() ? f(B{}) : f(Accumulator<B>{});
}

void mixed_scale_layer(View block, View w, View bias, const MixedScaleOptions& options) {
  constexpr auto op = kernel::MixedScaleLayer::name;
  const MixedScaleShape s = mixed_scale_shape(block, options, op);
  check_mixed_scale_weights(s, block, w, bias, op);
  const On on(block.device, op);
  dispatch_device_float(block.dtype, op, [&](auto t) {
    using T = decltype(t);
    dispatch_weight<T>(w.dtype, [&](auto filter) {
      using W = decltype(filter);
      each<1>(on, s.n * s.box_cells() * s.outputs, false,
              Layer<T, W>{block.as<T>(), w.as<const W>(), bias.data, bias.dtype, Geometry(s)});
    });
  });
}

void backward_relu(View gradient, View block, const MixedScaleOptions& options) {
  constexpr auto op = kernel::MixedScaleBackwardRelu::name;
  const MixedScaleShape s = mixed_scale_shape(block, options, op);
  check_mixed_scale_gradient(block, gradient, op);
  const On on(block.device, op);
  dispatch_device_float(block.dtype, op, [&](auto t) {
    using T = decltype(t);
    each<1>(on, s.n * s.box_cells() * s.outputs, false,
            Masked<T>{gradient.as<Accumulator<T>>(), block.as<const T>(), Geometry(s)});
  });
}

void backward_input(View gradient, View w, const MixedScaleOptions& options) {
  constexpr auto op = kernel::MixedScaleBackwardInput::name;
  const MixedScaleShape s = mixed_scale_shape(gradient, options, op);
  check_mixed_scale_input_gradient(s, gradient, w, op);
  const On on(gradient.device, op);
  dispatch_float(gradient.dtype, op, [&](auto t) {
    using A = Accumulator<decltype(t)>;
    dispatch_device_float(w.dtype, op, [&](auto filter) {
      using W = decltype(filter);
      if constexpr (std::is_same_v<Accumulator<W>, A>)
        each<1>(on, s.n * s.box_cells() * s.channels, false,
                Input<A, W>{gradient.as<A>(), w.as<const W>(), Geometry(s)});
    });
  });
}

void backward_weight(View dw, View dbias, View features, View gradient, const MixedScaleOptions& options,
                     bool accumulate) {
  constexpr auto op = kernel::MixedScaleBackwardWeight::name;
  const MixedScaleShape s = mixed_scale_shape(features, options, op);
  check_mixed_scale_weights(s, features, dw, dbias, op);
  check_mixed_scale_gradient(features, gradient, op);
  const On on(features.device, op);
  const Index places = s.n * s.box_cells(), terms = s.outputs * s.taps(), tiles = ceil_div(s.channels, warp);
  dispatch_device_float(features.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    constexpr Index blocks = 1024, least = 256;  // of threads, that fill a card; positions of a part
    const Index parts = std::clamp<Index>(std::min(ceil_div(blocks, terms * tiles), places / least), 1, 64);
    const Scratch sums(on, static_cast<std::size_t>(parts * terms * s.channels) * sizeof(A));
    const dim3 grid(static_cast<unsigned>(terms), static_cast<unsigned>(tiles), static_cast<unsigned>(parts));
    run(on, grid, block, filter_kernel<T>, sums.as<A>(), features.as<const T>(), gradient.as<const A>(), Geometry(s),
        places);
    each<1>(on, terms * s.channels, false,
            AddParts<A>{dw.data, dw.dtype, sums.as<const A>(), terms * s.channels, parts, accumulate});
    if (!dbias) return;
    const Index strips = std::clamp<Index>(std::min(ceil_div(blocks, s.outputs), places / (4 * block)), 1, 1024);
    const Scratch strip_sums(on, static_cast<std::size_t>(strips * s.outputs) * sizeof(double));
    run(on, dim3(static_cast<unsigned>(s.outputs), static_cast<unsigned>(strips)), block, bias_kernel<A>,
        strip_sums.as<double>(), gradient.as<const A>(), Geometry(s), places);
    sum_parts(on, dbias, strip_sums.as<const double>(), strips, accumulate);
  });
}

const Kernel<kernel::MixedScaleLayer> mixed_scale_layer_cuda{DeviceKind::cuda, mixed_scale_layer};
const Kernel<kernel::MixedScaleBackwardRelu> backward_relu_cuda{DeviceKind::cuda, backward_relu};
const Kernel<kernel::MixedScaleBackwardInput> backward_input_cuda{DeviceKind::cuda, backward_input};
const Kernel<kernel::MixedScaleBackwardWeight> backward_weight_cuda{DeviceKind::cuda, backward_weight};

}  // namespace
}  // namespace trireme::gpu
