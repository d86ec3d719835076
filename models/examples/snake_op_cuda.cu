// Snake's kernels for CUDA. Linking the object file is enough: the kernels register themselves.
#include <cuda_runtime.h>
#include <trireme/kernels/core/kernel.h>
#include <trireme/kernels/core/runtime.h>

#include <algorithm>
#include <cmath>

#include "snake_op.h"
using namespace trireme;

namespace {

__device__ Index first_item() { return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ Index item_step() { return static_cast<Index>(gridDim.x) * blockDim.x; }

template <class T>
__global__ void forward_kernel(T* y, const T* x, Index n) {
  for (Index i = first_item(); i < n; i += item_step()) {
    const auto v = static_cast<Accumulator<T>>(x[i]), s = std::sin(v);
    y[i] = static_cast<T>(v + s * s);
  }
}
template <class T>
__global__ void backward_kernel(T* dx, const T* dy, const T* x, Index n) {
  using A = Accumulator<T>;
  for (Index i = first_item(); i < n; i += item_step())
    dx[i] = static_cast<T>(static_cast<A>(dy[i]) * (1 + std::sin(2 * static_cast<A>(x[i]))));
}

/// Starts kernel(args...) on n elements, after all work that was submitted to the device before.
template <class... P>
void start(const char* op, Device device, Index n, void (*kernel)(P...), std::type_identity_t<P>... args) {
  constexpr Index threads = 256, most_blocks = 4096;
  if (n == 0) return;  // CUDA starts no grid without blocks
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min((n + threads - 1) / threads, most_blocks)));
  config.blockDim = dim3(threads);
  config.stream = static_cast<cudaStream_t>(runtime(DeviceKind::cuda).stream(device));
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, args...);
  check(status == cudaSuccess, ErrorKind::device, op, "CUDA says: {}", cudaGetErrorString(status));
}

void snake_forward(View y, View x) {
  dispatch_device_float(x.dtype, SnakeForward::name, [&](auto type) {
    using T = decltype(type);
    start(SnakeForward::name, x.device, x.numel(), forward_kernel<T>, y.as<T>(), x.as<T>(), x.numel());
  });
}
void snake_backward(View dx, View dy, View x) {
  dispatch_device_float(x.dtype, SnakeBackward::name, [&](auto type) {
    using T = decltype(type);
    start(SnakeBackward::name, x.device, x.numel(), backward_kernel<T>, dx.as<T>(), dy.as<T>(), x.as<T>(), x.numel());
  });
}
const Kernel<SnakeForward> snake_on_cuda{DeviceKind::cuda, snake_forward};
const Kernel<SnakeBackward> snake_backward_on_cuda{DeviceKind::cuda, snake_backward};

}  // namespace
