// Parts that CUDA kernels share: launches, element types, loads of several elements at once, sums over a block. Kernels
// use only static __shared__ memory, and blocks of whole warps.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>

#include "kernels/cuda/device.h"
#include "kernels/plans/checks.h"

namespace trireme::gpu {

constexpr int warp = 32;
constexpr int block = 256;  ///< threads, where a kernel has no reason for another number

/// Starts kernel(args...) with this number of blocks of `threads` threads, after all earlier work.
template <class... P, class... A>
void run(const On& on, dim3 blocks, int threads, void (*kernel)(P...), const A&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = on.stream();
  ok(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...), on.op());
}

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
/// Blocks for n items of `threads` at a time: enough to fill the device a few times over; a kernel reaches the rest by
/// grid strides.
inline dim3 blocks_for(const On& on, Index n, int threads = block) {
  const Index most = static_cast<Index>(on.multiprocessors()) * 32;
  return dim3(static_cast<unsigned>(std::clamp<Index>(ceil_div(n, threads), 1, most)));
}
/// First item of this thread, and the step to its next.
__device__ inline Index first_item() { return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline Index item_step() { return static_cast<Index>(gridDim.x) * blockDim.x; }

// Elements and the type they are computed in, with the hardware's conversions.
template <class T>
__device__ inline ComputeType<T> wide(T v) {
  return static_cast<ComputeType<T>>(v);
}
template <class T>
__device__ inline T rounded(ComputeType<T> v) {
  return static_cast<T>(v);
}
template <>
__device__ inline bf16 rounded<bf16>(float v) {
  return std::bit_cast<bf16>(__bfloat16_as_ushort(__float2bfloat16_rn(v)));
}
template <>
__device__ inline float wide<f16>(f16 v) {
  return __half2float(__ushort_as_half(std::bit_cast<unsigned short>(v)));
}
template <>
__device__ inline f16 rounded<f16>(float v) {
  return std::bit_cast<f16>(__half_as_ushort(__float2half_rn(v)));
}

/// n elements that are read or written at once: at most 16 bytes, at an address that is a multiple of their size.
template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T v[n];
};
template <class T>
constexpr int pack = 16 / static_cast<int>(sizeof(T));
template <int n, class T>
__device__ inline Pack<T, n> load(const T* from) {
  return *reinterpret_cast<const Pack<T, n>*>(from);
}
template <int n, class T>
__device__ inline void store(T* to, const Pack<T, n>& p) {
  *reinterpret_cast<Pack<T, n>*>(to) = p;
}
/// Whether all of these (except null ones) may be read 16 bytes at a time.
template <class... P>
bool aligned(const P*... p) {
  return ((reinterpret_cast<std::uintptr_t>(p) % 16 == 0) && ...);
}

template <int n>
struct Count {};
/// Calls f(Count<width>{}, i) on the first `whole` groups of width elements, [i, i + width), and f(Count<1>{}, i) on
/// the rest of n. f is a struct of pointers and numbers with template <int n> __device__ void operator()(Count<n>,
/// Index i) const.
template <int width, class F>
__global__ void each_kernel(Index n, Index whole, F f) {
  for (Index i = first_item(); i < whole; i += item_step()) f(Count<width>{}, i * width);
  if constexpr (width > 1)
    for (Index i = whole * width + first_item(); i < n; i += item_step()) f(Count<1>{}, i);
}
/// Over n elements; vector: whether `width` of them may be taken at a time.
template <int width, class F>
void each(const On& on, Index n, bool vector, const F& f) {
  if (n == 0) return;
  const Index whole = vector || width == 1 ? n / width : 0;
  run(on, blocks_for(on, vector ? ceil_div(n, width) : n), block, each_kernel<width, F>, n, whole, f);
}

/// Combines v of the 32 lanes of a warp; all get the result. All lanes take part.
template <class T, class Op>
__device__ inline T warp_combine(T v, Op op) {
  for (int step = warp / 2; step > 0; step /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}
struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// A NaN on either side wins.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};
/// Combines v of all threads of the block (whole warps); all get the result. All threads take part. none: op's
/// identity.
template <class T, class Op>
__device__ inline T block_combine(T v, T none, Op op) {
  __shared__ T parts[warp];
  v = warp_combine(v, op);
  __syncthreads();  // parts may still be read from the call before
  if (threadIdx.x % warp == 0) parts[threadIdx.x / warp] = v;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % warp;
  return warp_combine(lane < static_cast<int>(blockDim.x) / warp ? parts[lane] : none, op);
}
template <class T>
__device__ inline T block_sum(T v) {
  return block_combine(v, T(0), Plus{});
}

}  // namespace trireme::gpu
