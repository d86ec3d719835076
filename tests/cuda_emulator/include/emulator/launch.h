// Launching: cudaLaunchKernelEx and what it stands on.
#pragma once
#include <functional>
#include <tuple>
#include <type_traits>

#include "emulator/api.h"
#include "emulator/device_access.h"

struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace emulator {

/// What is wrong with the grid, if anything; cudaSuccess without a launch for grids that have no error.
cudaError_t refuse(const cudaLaunchConfig_t&);
/// Runs thread() once for each thread of each block, in the order of the stream.
cudaError_t launch(const cudaLaunchConfig_t&, std::function<void()> thread);
/// Kernels get no pointer that only the host can follow, nor one to another device, nor one to a block that was freed.
cudaError_t refuse_pointer(const void* p, cudaStream_t stream);

template <class T>
cudaError_t refuse_argument(const T& v, cudaStream_t stream) {
  if constexpr (std::is_pointer_v<T>)
    if constexpr (!std::is_function_v<std::remove_pointer_t<T>>) return refuse_pointer(v, stream);
  return cudaSuccess;
}

}  // namespace emulator

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... args) {
  static_assert(((!std::is_reference_v<P> && std::is_trivially_copyable_v<P>)&&...),
                "a kernel's parameters are copied to the device byte by byte");
  static_assert((std::size_t{0} + ... + sizeof(P)) <= 4096, "a kernel's parameters take at most 4 KB");
  if (const cudaError_t status = emulator::refuse(*config); status != cudaSuccess) return status;
  const std::tuple<P...> values(static_cast<P>(args)...);
  cudaError_t status = cudaSuccess;
  auto look = [&](const auto& v) {
    if (status == cudaSuccess) status = emulator::refuse_argument(v, config->stream);
  };
  std::apply([&](const auto&... v) { (look(v), ...); }, values);
  if (status != cudaSuccess) return status;
  return emulator::launch(*config, [kernel, values] { std::apply(kernel, values); });
}
