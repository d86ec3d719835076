// The emulator of CUDA (tests/cuda_emulator): that it runs kernels right, and that it sees their faults.
#include <numeric>

#include "kernels/cuda/launch.cuh"
#include "kernels/runtime.h"
#include "settings.h"
#include "tests/catch.h"

using namespace trireme;
using namespace trireme::gpu;
using trireme::test::contains;

namespace {

/// A vector on the device.
template <class T>
struct OnDevice {
  explicit OnDevice(std::size_t n) : n(n) { ok(cudaMallocAsync(&data, n * sizeof(T), on.stream()), "test"); }
  explicit OnDevice(const std::vector<T>& v) : OnDevice(v.size()) {
    ok(cudaMemcpyAsync(data, v.data(), n * sizeof(T), cudaMemcpyHostToDevice, on.stream()), "test");
  }
  ~OnDevice() { (void)cudaFreeAsync(data, on.stream()); }
  std::vector<T> read() const {
    std::vector<T> v(n);
    ok(cudaMemcpyAsync(v.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost, on.stream()), "test");
    ok(cudaStreamSynchronize(on.stream()), "test");
    return v;
  }
  On on{cuda(0), "test"};
  std::size_t n;
  T* data = nullptr;
};

std::vector<float> counted(std::size_t n) {
  std::vector<float> v(n);
  std::iota(v.begin(), v.end(), 1.0f);
  return v;
}

__global__ void sums(const float* x, float* y, int n) {
  float s = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) s += x[blockIdx.x * n + i];
  s = block_sum(s);
  if (threadIdx.x == 0) y[blockIdx.x] = s;
}

__global__ void reversed(const float* x, float* y, bool wait) {
  __shared__ float held[block];
  held[threadIdx.x] = x[threadIdx.x];
  if (wait) __syncthreads();
  y[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

struct Twice {
  const float* x;
  float* y;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    auto v = load<n>(x + i);
    for (float& e : v.v) e *= 2;
    store(y + i, v);
  }
};

/// Set while a test wants another order of threads.
struct Ordered {
  explicit Ordered(emulator::Order o) : before(emulator::settings().order) { emulator::set_order(o); }
  ~Ordered() { emulator::set_order(before); }
  emulator::Order before;
};
const emulator::Order orders[] = {{emulator::Order::forward, 0},
                                  {emulator::Order::backward, 0},
                                  {emulator::Order::shuffled, 1},
                                  {emulator::Order::shuffled, 2}};

}  // namespace

TEST_CASE("emulated blocks sum, in any order of their threads", "[cuda_emulator]") {
  for (auto order : orders) {
    const Ordered ordered(order);
    constexpr int rows = 5, n = 700;
    const OnDevice<float> x(counted(rows * n)), y(rows);
    run(x.on, dim3(rows), block, sums, static_cast<const float*>(x.data), y.data, n);
    const auto got = y.read();
    for (int r = 0; r < rows; ++r) CHECK(got[static_cast<std::size_t>(r)] == n * (r * n + (n + 1) / 2.0f));
  }
}

TEST_CASE("a missing barrier shows in one order or another", "[cuda_emulator]") {
  int wrong = 0, launches = 0;
  for (auto order : orders)
    for (bool wait : {true, false}) {
      const Ordered ordered(order);
      auto in = counted(block);  // other numbers each time: shared memory keeps those of the launch before
      for (float& v : in) v += 1000.0f * static_cast<float>(++launches);
      const OnDevice<float> x(in), y(block);
      run(x.on, dim3(1), block, reversed, static_cast<const float*>(x.data), y.data, wait);
      auto got = y.read();
      std::reverse(got.begin(), got.end());
      if (wait) CHECK(got == in);
      if (!wait) wrong += got != in;
    }
  CHECK(wrong == static_cast<int>(std::size(orders)));
}

TEST_CASE("grid strides reach all elements, four at a time and the rest", "[cuda_emulator]") {
  for (std::size_t n : {1u, 3u, 4u, 1027u, 400003u}) {
    const auto in = counted(n);
    const OnDevice<float> x(in), y(n);
    each<4>(x.on, static_cast<Index>(n), true, Twice{x.data, y.data});
    auto got = y.read();
    for (float& v : got) v /= 2;
    CHECK(got == in);
  }
}
