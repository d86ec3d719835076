// A vector in the memory of a device, by CUDA's own calls: for tests of the emulator.
#pragma once
#include <vector>

#include "kernels/cuda/device.h"

namespace trireme::gpu {

template <class T>
struct OnDevice {
  explicit OnDevice(std::size_t n, Device device = cuda(0)) : on(device, "test"), n(n) {
    ok(cudaMallocAsync(&data, n * sizeof(T), on.stream()), "test");
  }
  explicit OnDevice(const std::vector<T>& v, Device device = cuda(0)) : OnDevice(v.size(), device) {
    ok(cudaMemcpyAsync(data, v.data(), n * sizeof(T), cudaMemcpyHostToDevice, on.stream()), "test");
  }
  ~OnDevice() { (void)cudaFreeAsync(data, on.stream()); }
  std::vector<T> read() const {
    std::vector<T> v(n);
    ok(cudaMemcpyAsync(v.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost, on.stream()), "test");
    ok(cudaStreamSynchronize(on.stream()), "test");
    return v;
  }
  On on;
  std::size_t n;
  T* data = nullptr;
};

}  // namespace trireme::gpu
