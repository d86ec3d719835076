// The emulator of CUDA (tests/cuda_emulator): that it runs kernels right, and that it sees their faults.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <thread>

#include "fence.h"
#include "kernels/core/runtime.h"
#include "kernels/cuda/launch.cuh"
#include "settings.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/support/catch.h"

namespace test_cuda_emulator {

using namespace trireme;
using namespace trireme::gpu;
using trireme::test::contains;

namespace {

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

template <class T>
struct Twice {
  const T* x;
  T* y;
  template <int n>
  __device__ void operator()(Count<n>, Index i) const {
    auto v = load<n>(x + i);
    for (T& e : v.v) e *= 2;
    store(y + i, v);
  }
};

constexpr unsigned all_lanes = 0xffffffffu, low_lanes = 0xffu;

__global__ void shuffled(const float* x, double* y) {
  const int i = static_cast<int>(threadIdx.x), n = static_cast<int>(blockDim.x);
  const float v = x[i];
  y[i] = __shfl_sync(all_lanes, v, 5);
  y[n + i] = __shfl_xor_sync(all_lanes, static_cast<double>(v), 3);
  y[2 * n + i] = static_cast<double>(__shfl_down_sync(all_lanes, static_cast<long long>(v), 4));
  y[3 * n + i] = __shfl_up_sync(all_lanes, static_cast<int>(v), 2, 8);
  y[4 * n + i] = __ballot_sync(all_lanes, i % 3 == 0);
  // Lanes that go different ways meet among themselves.
  y[5 * n + i] = i % 32 < 8 ? __shfl_xor_sync(low_lanes, v, 7) : __shfl_xor_sync(~low_lanes, v, 1);
  y[6 * n + i] = __any_sync(all_lanes, i == 40) + 2 * __all_sync(all_lanes, i >= 32);
}

__global__ void voted(int* y, unsigned long long* sum) {
  const int i = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int odd = __syncthreads_count(i % 2), any = __syncthreads_or(i == 7), all = __syncthreads_and(i != 7);
  y[i] = odd * 100 + any * 10 + all;
  atomicAdd(sum, static_cast<unsigned long long>(i + blockIdx.x + 10 * blockIdx.y));
}

enum class Wrong { half_block, two_barriers, half_warp, mask, thrown };
__global__ void faulty(Wrong fault, int* y) {
  const int i = static_cast<int>(threadIdx.x);
  if (fault == Wrong::half_block && i < 40) __syncthreads();
  if (fault == Wrong::two_barriers) {
    if (i < 40)
      __syncthreads();
    else
      __syncthreads();
  }
  if (fault == Wrong::half_warp && i % 32 < 7) y[i] = __shfl_xor_sync(all_lanes, i, 1);
  if (fault == Wrong::mask) y[i] = __shfl_xor_sync(low_lanes, i, 1);
  if (fault == Wrong::thrown) throw std::runtime_error("thrown by a thread");
  y[i] = 1;
}

__global__ void filled(float* y, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) y[i] = 1;
}

/// y[i] = what the thread 32 after i wrote, with a meeting of its warp where all of the block ought to meet.
__global__ void from_another_warp(float* y) {
  __shared__ float shared[64];
  const int i = static_cast<int>(threadIdx.x);
  shared[i] = -1;
  __syncthreads();
  shared[i] = static_cast<float>(i);
  __syncwarp();
  y[i] = shared[(i + 32) % 64];
}

/// What this program prints when it runs one of its hidden tests alone.
std::string child(const std::string& test) {
  char self[4096];
  const auto length = readlink("/proc/self/exe", self, sizeof self);
  const std::string command = "'" + std::string(self, static_cast<std::size_t>(length)) + "' '" + test + "' 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  CHECK(pclose(pipe) != 0);
  return text;
}

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

TEST_CASE("a warp that runs ahead shows that others were not waited for", "[cuda_emulator]") {
  const Ordered ordered({emulator::Order::backward, 0});
  const OnDevice<float> y(64);
  run(y.on, dim3(1), 64, from_another_warp, y.data);
  const auto got = y.read();
  CHECK(std::count(got.begin(), got.end(), -1.0f) == 32);
}

TEST_CASE("grid strides reach all elements, four at a time and the rest", "[cuda_emulator]") {
  for (std::size_t n : {1u, 3u, 4u, 1027u, 400003u}) {
    const auto in = counted(n);
    const OnDevice<float> x(in), y(n);
    each<4>(x.on, static_cast<Index>(n), true, Twice<float>{x.data, y.data});
    auto got = y.read();
    for (float& v : got) v /= 2;
    CHECK(got == in);
  }
}

TEST_CASE("lanes of a warp exchange values as CUDA says", "[cuda_emulator]") {
  for (auto order : orders) {
    const Ordered ordered(order);
    constexpr int n = 64;
    const auto in = counted(n);
    const OnDevice<float> x(in);
    const OnDevice<double> y(7 * n);
    run(x.on, dim3(1), n, shuffled, static_cast<const float*>(x.data), y.data);
    const auto got = y.read();
    for (int i = 0; i < n; ++i) {
      const int first = i / 32 * 32, lane = i % 32;
      auto at = [&](int which) { return got[static_cast<std::size_t>(which * n + i)]; };
      auto held = [&](int who) { return static_cast<double>(in[static_cast<std::size_t>(who)]); };
      CHECK(at(0) == held(first + 5));
      CHECK(at(1) == held(i ^ 3));
      CHECK(at(2) == held(lane + 4 < 32 ? i + 4 : i));
      CHECK(at(3) == held(lane % 8 >= 2 ? i - 2 : i));
      CHECK(at(4) == (first == 0 ? 0x49249249u : 0x92492492u));
      CHECK(at(5) == held(lane < 8 ? i ^ 7 : i ^ 1));
      CHECK(at(6) == (first == 0 ? 0 : 3));
    }
  }
}

TEST_CASE("blocks vote, have two dimensions, and add to one number", "[cuda_emulator]") {
  constexpr unsigned wide = 16, high = 8, n = wide * high;
  const OnDevice<int> y(n);
  const OnDevice<unsigned long long> sum(std::vector<unsigned long long>{0});
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(3, 2);
  config.blockDim = dim3(wide, high);
  config.stream = y.on.stream();
  ok(cudaLaunchKernelEx(&config, voted, y.data, sum.data), "test");
  CHECK(y.read() == std::vector<int>(n, static_cast<int>(n / 2 * 100 + 10)));
  CHECK(sum.read()[0] == 6 * (n * (n - 1) / 2) + n * (2 * (0 + 1 + 2) + 3 * 10));
}

TEST_CASE("threads that do not meet are an error, and not the last launch", "[cuda_emulator]") {
  const OnDevice<int> y(block);
  auto start = [&](Wrong wrong) {
    run(y.on, dim3(2), block, faulty, wrong, y.data);
    ok(cudaStreamSynchronize(y.on.stream()), "test");
  };
  CHECK_ERROR(start(Wrong::half_block), device, "__syncthreads", 40, 256, 216, "test_cuda_emulator.cpp");
  CHECK_ERROR(start(Wrong::two_barriers), device, "barriers");
  CHECK_ERROR(start(Wrong::half_warp), device, 0, "__shfl_xor_sync", "0000007f", "ffffffff");
  CHECK_ERROR(start(Wrong::mask), device, "mask");
  CHECK_ERROR(start(Wrong::thrown), device, "thrown by a thread");
  constexpr int n = 512;
  const OnDevice<float> x(counted(n)), s(1);
  run(x.on, dim3(1), block, sums, static_cast<const float*>(x.data), s.data, n);
  CHECK(s.read()[0] == n * (n + 1) / 2.0f);
}

TEST_CASE("kernels and copies are refused memory that is not theirs", "[cuda_emulator]") {
  constexpr int n = 100;
  std::vector<float> host(2 * n);
  const OnDevice<float> y(n);
  auto start = [&](float* to) { run(y.on, dim3(1), block, filled, to, n); };
  CHECK_ERROR(start(host.data()), device, "pinned");
  float* gone = nullptr;
  ok(cudaMallocAsync(&gone, n * sizeof(float), y.on.stream()), "test");
  ok(cudaFreeAsync(gone, y.on.stream()), "test");
  ok(cudaStreamSynchronize(y.on.stream()), "test");
  CHECK_ERROR(start(gone), device, "block");
  auto copy = [&](void* to, const void* from, int count, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(float), kind, y.on.stream());
  };
  CHECK(copy(y.data, host.data(), n, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(copy(y.data, host.data(), n + 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(y.data + 1, host.data(), n, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host.data(), y.data, n, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host.data(), y.data, n, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(y.data, 0, n * sizeof(float) + 1, y.on.stream()) == cudaErrorInvalidValue);
  CHECK(cudaFreeAsync(y.data + 1, y.on.stream()) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
  if (emulator::settings().devices > 1) {
    const On other(cuda(1), "test");
    CHECK_ERROR(run(other, dim3(1), block, filled, y.data, n), device, "another device");
    const On back(cuda(0), "test");
  }
}

TEST_CASE("device memory is NaN before it is written, and runs out", "[cuda_emulator]") {
  for (std::size_t n : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20, std::size_t{10} << 20})
    for (int round = 0; round < 2; ++round) {
      const OnDevice<float> y(n);
      CHECK(reinterpret_cast<std::uintptr_t>(y.data) % 256 == 0);
      const auto seen = y.read();
      CHECK(std::all_of(seen.begin(), seen.end(), [](float v) { return std::isnan(v); }));
      run(y.on, dim3(1), block, filled, y.data, static_cast<int>(n));
      CHECK(y.read() == std::vector<float>(n, 1.0f));
    }
  const On on(cuda(0), "test");
  ok(cudaStreamSynchronize(on.stream()), "test");  // memory is given back in the order of the stream
  std::size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(total == emulator::settings().memory);
  CHECK(free == total);
  void* p = nullptr;
  CHECK(cudaMallocAsync(&p, total + 1, on.stream()) == cudaErrorMemoryAllocation);
  CHECK(p == nullptr);
}

TEST_CASE("several host threads launch at once", "[cuda_emulator]") {
  constexpr int team = 4, rounds = 30, n = 4096;
  std::vector<std::thread> threads;
  std::vector<int> wrong(team);
  for (int t = 0; t < team; ++t)
    threads.emplace_back([&, t] {
      cudaStream_t stream = nullptr;
      ok(cudaSetDevice(0), "test");
      ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "test");
      const OnDevice<float> y(1);
      auto in = counted(n);
      for (float& v : in) v += static_cast<float>(t);
      const OnDevice<float> x(in);
      ok(cudaStreamSynchronize(x.on.stream()), "test");
      cudaLaunchConfig_t config{};
      config.blockDim = dim3(block);
      config.stream = stream;
      for (int i = 0; i < rounds; ++i) {
        ok(cudaLaunchKernelEx(&config, sums, static_cast<const float*>(x.data), y.data, n), "test");
        ok(cudaStreamSynchronize(stream), "test");
        wrong[static_cast<std::size_t>(t)] += y.read()[0] != n * (n + 1) / 2.0f + static_cast<float>(n * t);
      }
      ok(cudaStreamDestroy(stream), "test");
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == std::vector<int>(team, 0));
}

TEST_CASE("child: the host reads", "[.]") {
  const OnDevice<float> y(counted(10));
  CHECK(*const_cast<volatile float*>(y.data) == 1.0f);
}
TEST_CASE("child: a kernel writes too far", "[.]") {
  const OnDevice<float> y(1001);
  run(y.on, dim3(1), block, filled, y.data, 1002);
  ok(cudaFreeAsync(y.data, y.on.stream()), "test");
  ok(cudaStreamSynchronize(y.on.stream()), "test");
}
TEST_CASE("child: a kernel reads where nothing is", "[.]") {
  const OnDevice<float> y(1001);
  each<4>(y.on, 4, true, Twice<float>{reinterpret_cast<const float*>(std::uintptr_t{1} << 20), y.data});
  ok(cudaStreamSynchronize(y.on.stream()), "test");
}

TEST_CASE("child: a kernel loads four at once from anywhere", "[.]") {
  const OnDevice<std::uint16_t> y(1001);
  each<4>(y.on, 4, true, Twice<std::uint16_t>{y.data + 1, y.data});
  ok(cudaStreamSynchronize(y.on.stream()), "test");
}

TEST_CASE("the host's hand on device memory and kernels that leave theirs end the process", "[cuda_emulator]") {
  const On on(cuda(0), "test");
  if (emulator::fenced()) {
    CHECK_THAT(child("child: a kernel loads four at once from anywhere"), contains("no multiple of its size"));
    CHECK_THAT(child("child: the host reads"), contains("emulator: the host touched device memory at 0x"));
    CHECK_THAT(child("child: a kernel reads where nothing is"),
               contains("touched what is no memory, 0x00000000001000"));
  }
  CHECK_THAT(child("child: a kernel writes too far"),
             contains("wrote beyond the end of a device block of bytes: 4004") || contains("AddressSanitizer"));
}

}  // namespace test_cuda_emulator
