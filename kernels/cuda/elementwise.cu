// Axpby, Fill, Cast and Normalize.
#include "kernels/contracts/elementwise.h"

#include "kernels/core/kernel.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/plans/elementwise_checks.h"

namespace trireme::gpu {
namespace {

template <class T>
struct Axpby {
  T* y;
  const T* x;
  Accumulator<T> alpha, beta;

  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    Pack<T, n> p = load<n>(x + i);
    if (beta == 0) {
      for (int j = 0; j < n; ++j) p.v[j] = rounded<T>(alpha * wide(p.v[j]));
    } else {
      const Pack<T, n> old = load<n>(y + i);
      for (int j = 0; j < n; ++j) p.v[j] = rounded<T>(alpha * wide(p.v[j]) + beta * wide(old.v[j]));
    }
    store(y + i, p);
  }
};

void axpby(View y, View x, double alpha, double beta) {
  constexpr auto op = kernel::Axpby::name;
  check_axpby(y, x);
  const On on(y.device, op);
  dispatch_device_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    each<pack<T>>(on, y.numel(), aligned(y.data, x.data), Axpby<T>{y.as<T>(), x.as<const T>(), A(alpha), A(beta)});
  });
}

template <class T>
struct Fill {
  T* y;
  T value;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    Pack<T, n> p;
    for (int j = 0; j < n; ++j) p.v[j] = value;
    store(y + i, p);
  }
};

void fill(View y, double value) {
  const On on(y.device, kernel::Fill::name);
  dispatch_any(y.dtype, [&](auto t) {
    const auto v = element<decltype(t)>(value);
    with_bytes(y.dtype, [&](auto u) {
      using U = decltype(u);
      if constexpr (sizeof(U) == sizeof(v))
        each<pack<U>>(on, y.numel(), aligned(y.data), Fill<U>{y.as<U>(), std::bit_cast<U>(v)});
    });
  });
}

/// element<T>(value) by the hardware's conversions.
template <class T, class S>
__device__ T converted(S value) {
  if constexpr (std::is_same_v<T, S>)
    return value;
  else if constexpr (is_narrow_type<S>)
    return converted<T>(wide(value));
  else if constexpr (is_narrow_type<T>)
    return rounded<T>(static_cast<float>(value));
  else
    return element<T>(value);
}

template <class T, class S>
struct Cast {
  T* y;
  const S* x;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    const Pack<S, n> from = load<n>(x + i);
    Pack<T, n> to;
    for (int j = 0; j < n; ++j) to.v[j] = converted<T>(from.v[j]);
    store(y + i, to);
  }
};
/// Between any types: through a float, a double or an integer of 64 bits, which hold them all.
struct CastAny {
  void* y;
  const void* x;
  DType to, from;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    with_number(from, [&](auto a) {
      const auto v = number<decltype(a)>(x, from, i);
      const auto put = [&](auto t) { static_cast<decltype(t)*>(y)[i] = converted<decltype(t)>(v); };
      is_float(to) ? with_float(to, put) : with_integer(to, put);
    });
  }
};

template <class T, class S>
void cast_packs(const On& on, Index n, void* y, const void* x) {
  each<std::min(pack<T>, pack<S>)>(on, n, aligned(y, x), Cast<T, S>{static_cast<T*>(y), static_cast<const S*>(x)});
}

void cast(View y, View x) {
  check_cast(y, x);
  const On on(y.device, kernel::Cast::name);
  const Index n = y.numel();
  if (y.dtype == x.dtype) return cast_packs<std::uint8_t, std::uint8_t>(on, n * size_of(y.dtype), y.data, x.data);
  const auto is = [&](DType to, DType from) { return y.dtype == to && x.dtype == from; };
  if (is(DType::bf16, DType::f32)) return cast_packs<bf16, float>(on, n, y.data, x.data);
  if (is(DType::f32, DType::bf16)) return cast_packs<float, bf16>(on, n, y.data, x.data);
  if (is(DType::f16, DType::f32)) return cast_packs<f16, float>(on, n, y.data, x.data);
  if (is(DType::f32, DType::f16)) return cast_packs<float, f16>(on, n, y.data, x.data);
  each<1>(on, n, false, CastAny{y.data, x.data, y.dtype, x.dtype});
}

constexpr int few_channels = 512;  ///< whose scales and shifts a block caches
constexpr int pixel_packs = 4;     ///< packs of pixels that a thread has under way

template <class A>
struct Affine {
  A scale, shift;
};

/// Scales and shifts of any floating type.
struct Channels {
  const void *scale, *shift;
  DType scale_type, shift_type;
  LongDivisor count;

  template <class A>
  __device__ Affine<A> at(Index c) const {
    return {number<A>(scale, scale_type, c), number<A>(shift, shift_type, c)};
  }
};

template <class A>
struct Gather {
  Affine<A>* table;
  Channels channels;
  __device__ void operator()(Count<1>, Index c) const { table[c] = channels.template at<A>(c); }
};

/// y[i] = scale[c] * x[i] + shift[c], c = i % channels.count. table: of many channels. A warp reads and writes
/// neighbouring packs.
template <class T, int width>
__global__ void normalize_kernel(T* y, const std::uint8_t* x, Index n, Channels channels,
                                 const Affine<Accumulator<T>>* table) {
  using A = Accumulator<T>;
  __shared__ Affine<A> few[few_channels];
  if (table == nullptr)
    for (int c = static_cast<int>(threadIdx.x); c < channels.count.by(); c += block) few[c] = channels.at<A>(c);
  __syncthreads();
  const Affine<A>* affine = table ? table : few;
  for (Index tile = static_cast<Index>(blockIdx.x) * block * width * pixel_packs; tile < n;
       tile += item_step() * width * pixel_packs) {
    Pack<std::uint8_t, width> in[pixel_packs] = {};
    const Index first = tile + static_cast<Index>(threadIdx.x) * width;
    for (int k = 0; k < pixel_packs; ++k)
      if (const Index i = first + k * block * width; i < n) in[k] = load<width>(x + i);
    for (int k = 0; k < pixel_packs; ++k) {
      const Index i = first + k * block * width;
      Index c = i - channels.count.quotient(i) * channels.count.by();
      Pack<T, width> out;
      for (int j = 0; j < width; ++j) {
        out.v[j] = rounded<T>(affine[c].scale * static_cast<A>(in[k].v[j]) + affine[c].shift);
        if (++c == channels.count.by()) c = 0;
      }
      if (i < n) store(y + i, out);
    }
  }
}

void normalize(View y, View x, View scale, View shift) {
  constexpr auto op = kernel::Normalize::name;
  check_normalize(y, x, scale, shift);
  const Index n = y.numel(), count = row_width(y.shape);
  if (n == 0) return;
  const On on(y.device, op);
  check(is_float(scale.dtype) && is_float(shift.dtype), op, "got {} scales and {} shifts, expected floating types",
        scale.dtype, shift.dtype);
  const Channels channels{scale.data, shift.data, scale.dtype, shift.dtype, LongDivisor(count)};
  dispatch_device_float(y.dtype, op, [&](auto t) {
    using T = decltype(t);
    using Row = Affine<Accumulator<T>>;
    const Scratch table(on, count > few_channels ? static_cast<std::size_t>(count) * sizeof(Row) : 0);
    if (count > few_channels) each<1>(on, count, true, Gather<Accumulator<T>>{table.as<Row>(), channels});
    constexpr int width = pack<T>;
    const bool vector = aligned(y.data, x.data) && n % width == 0;
    const dim3 blocks = blocks_for(on, ceil_div(n, (vector ? width : 1) * pixel_packs));
    run(on, blocks, block, vector ? normalize_kernel<T, width> : normalize_kernel<T, 1>, y.as<T>(),
        x.as<const std::uint8_t>(), n, channels, table.as<const Row>());
  });
}

const Kernel<kernel::Axpby> axpby_cuda{DeviceKind::cuda, axpby};
const Kernel<kernel::Fill> fill_cuda{DeviceKind::cuda, fill};
const Kernel<kernel::Cast> cast_cuda{DeviceKind::cuda, cast};
const Kernel<kernel::Normalize> normalize_cuda{DeviceKind::cuda, normalize};

}  // namespace
}  // namespace trireme::gpu
