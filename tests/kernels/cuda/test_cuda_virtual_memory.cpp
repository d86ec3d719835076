// Blocks of which parts are given back (kernels/cuda/virtual_memory.h), on the emulated driver.
#include <cuda.h>

#include <cmath>
#include <random>

#include "kernels/core/runtime.h"
#include "kernels/cuda/plugin.h"
#include "kernels/cuda/virtual_memory.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/support/catch.h"
#include "virtual_memory.h"

namespace test_cuda_virtual_memory {

using namespace trireme;
using namespace trireme::gpu;

namespace {

constexpr std::size_t chunk = std::size_t{2} << 20, floats = chunk / sizeof(float);

std::vector<float> read(const float* from, std::size_t n) {
  std::vector<float> v(n);
  device_runtime().copy(v.data(), cpu(), from, cuda(0), n * sizeof(float));
  return v;
}
std::size_t used() {
  std::size_t free = 0, all = 0;
  ok(cudaMemGetInfo(&free, &all), "test");
  return all - free;
}

}  // namespace

TEST_CASE("parts of a block are given back and come again: random ones, beside a model of them", "[cuda_emulator]") {
  Runtime& r = device_runtime();
  const On on(cuda(0), "test");
  r.synchronize(cuda(0));
  const std::size_t before = used(), in_use = r.in_use(), n = 5 * floats + 1234, bytes = n * sizeof(float);
  auto* data = static_cast<float*>(r.allocate_discardable(bytes, cuda(0)));
  CHECK(r.in_use() - in_use == 6 * chunk);
  CHECK(used() - before == 6 * chunk);
  enum Content { nothing, there, gone };
  std::vector<Content> model(6, there);
  std::vector<float> value(6, 0);
  ok(cudaMemsetAsync(data, 0, bytes, on.stream()), "test");
  std::mt19937 random(3);
  const auto end_of = [&](std::size_t c) { return std::min(n, (c + 1) * floats); };
  for (int round = 0; round < 200; ++round) {
    std::size_t begin = random() % n, end = random() % n;
    if (begin > end) std::swap(begin, end);
    if (round % 7 == 0) end = n;
    if (round % 11 == 0) begin = 0;
    if (random() % 2) {
      r.discard(data + begin, (end - begin) * sizeof(float), cuda(0));
      for (std::size_t c = 0; c < 6; ++c) {
        if (begin <= c * floats && end_of(c) <= end)
          model[c] = gone;
        else if (begin < end_of(c) && c * floats < end && model[c] == there)
          model[c] = nothing;  // NaN at one edge
      }
    } else {
      r.restore(data + begin, (end - begin) * sizeof(float), cuda(0));
      for (std::size_t c = 0; c < 6; ++c)
        if (begin < end_of(c) && c * floats < end && begin < end) {
          const std::vector<float> held = read(data + c * floats, end_of(c) - c * floats);
          if (model[c] == gone) CHECK(std::ranges::all_of(held, [](float v) { return std::isnan(v); }));
          if (model[c] == there)
            CHECK(std::ranges::all_of(held, [&](float v) { return v == value[c] || std::isnan(v); }));
          value[c] = static_cast<float>(round);
          const std::vector<float> fill(held.size(), value[c]);
          r.copy(data + c * floats, cuda(0), fill.data(), cpu(), fill.size() * sizeof(float));
          model[c] = there;
        }
    }
    std::size_t resident = 0, mapped = 0;
    for (std::size_t c = 0; c < 6; ++c)
      if (model[c] != gone) {
        resident += (end_of(c) - c * floats) * sizeof(float);
        mapped += chunk;
      }
    CHECK(r.resident(data, bytes, cuda(0)) == resident);
    CHECK(r.in_use() - in_use == mapped);
    r.synchronize(cuda(0));
    r.release(r.allocate(1, cuda(0)), 1, cuda(0));  // whoever comes by unmaps
    r.synchronize(cuda(0));
    CHECK(used() - before == mapped);
    for (std::size_t c = 0; c < 6; ++c) CHECK(emulator::is_accessible(data + c * floats, 4, 0) == (model[c] != gone));
  }
  r.release(data, bytes, cuda(0));
  r.synchronize(cuda(0));
  r.release(r.allocate(1, cuda(0)), 1, cuda(0));
  r.synchronize(cuda(0));
  CHECK(r.in_use() == in_use);
  CHECK(used() == before);
}

TEST_CASE("parts of a block of zeros get memory when they are restored, and are 0 then", "[cuda_emulator]") {
  Runtime& r = device_runtime();
  r.synchronize(cuda(0));
  const std::size_t before = r.in_use(), n = 4 * floats + 1000, bytes = n * sizeof(float);
  auto* data = static_cast<float*>(r.allocate_zeros(bytes, cuda(0)));
  const auto all = [&](std::size_t begin, std::size_t end, float value) {
    return std::ranges::all_of(read(data + begin, end - begin), [&](float v) { return v == value; });
  };
  CHECK(r.in_use() == before);
  CHECK(r.resident(data, bytes, cuda(0)) == 0);
  CHECK_FALSE(emulator::is_accessible(data, 4, 0));
  r.discard(data + floats / 2, 2 * floats * sizeof(float), cuda(0));  // the second chunk is no longer 0
  r.restore(data + floats / 2, chunk, cuda(0));
  CHECK(r.in_use() - before == 2 * chunk);
  CHECK(all(0, floats, 0));
  r.restore(data, bytes, cuda(0));
  CHECK(r.in_use() - before == 5 * chunk);
  CHECK(all(2 * floats, n, 0));
  const std::vector<float> ones(n, 1);
  const auto fill = [&] { r.copy(data, cuda(0), ones.data(), cpu(), bytes); };
  fill();
  r.zero(data + floats / 2, 2 * chunk, cuda(0));  // its chunk is still leaving when it comes back
  CHECK(r.in_use() - before == 4 * chunk);
  r.restore(data + floats, chunk, cuda(0));
  CHECK(all(0, floats / 2, 1));
  CHECK(all(floats / 2, 2 * floats + floats / 2, 0));
  CHECK(all(2 * floats + floats / 2, n, 1));
  fill();
  r.zero(data + 3 * floats, bytes - 3 * chunk, cuda(0));
  r.synchronize(cuda(0));
  r.release(r.allocate(1, cuda(0)), 1, cuda(0));  // unmaps
  CHECK_FALSE(emulator::is_accessible(data + 3 * floats, 4, 0));
  r.restore(data, bytes, cuda(0));
  CHECK(all(0, 3 * floats, 1));
  CHECK(all(3 * floats, n, 0));
  for (const bool unmaps : {false, true}) {  // zeros in a chunk that is leaving, or gone
    r.discard(data, bytes, cuda(0));
    if (unmaps) {
      r.synchronize(cuda(0));
      r.release(r.allocate(1, cuda(0)), 1, cuda(0));
    }
    r.zero(data + 100, 1000 * sizeof(float), cuda(0));
    r.restore(data, bytes, cuda(0));
    CHECK(all(100, 1100, 0));
  }
  r.zero(data, bytes, cuda(0));
  r.discard(data, bytes, cuda(0));  // an end to the zeros
  r.release(data, bytes, cuda(0));
  r.synchronize(cuda(0));
  r.release(r.allocate(1, cuda(0)), 1, cuda(0));
  CHECK(r.in_use() == before);
}

TEST_CASE("the driver's virtual memory refuses what CUDA's does", "[cuda_emulator]") {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUdeviceptr at = 0;
  CHECK(cuMemAddressReserve(&at, chunk + 1, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuMemAddressReserve(&at, 2 * chunk, chunk, 0, 0) == CUDA_SUCCESS);
  CUmemGenericAllocationHandle memory{};
  CHECK(cuMemCreate(&memory, 1000, &kind, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemCreate(&memory, std::size_t{1} << 50, &kind, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(cuMemCreate(&memory, chunk, &kind, 0) == CUDA_SUCCESS);
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemSetAccess(at, chunk, &access, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(at + 4096, chunk, 0, memory, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(at + 2 * chunk, chunk, 0, memory, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(at, chunk, 0, memory, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(at, chunk, 0, memory, 0) == CUDA_ERROR_INVALID_VALUE);
  auto* p = reinterpret_cast<void*>(at);
  CHECK(cudaMemset(p, 0, 4) == cudaErrorInvalidValue);  // nobody has access yet
  CHECK(cuMemSetAccess(at, 2 * chunk, &access, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemSetAccess(at, chunk, &access, 1) == CUDA_SUCCESS);
  CHECK(cudaMemset(p, 0, chunk) == cudaSuccess);
  CHECK(cudaMemset(p, 0, chunk + 1) == cudaErrorInvalidValue);
  CHECK(cudaFree(p) == cudaErrorInvalidValue);
  CHECK(cuMemAddressFree(at, 2 * chunk) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemUnmap(at, chunk / 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemRelease(memory) == CUDA_SUCCESS);
  CHECK(cuMemUnmap(at, chunk) == CUDA_SUCCESS);
  CHECK(cudaMemset(p, 0, 4) == cudaErrorInvalidValue);
  CHECK(cuMemAddressFree(at, 2 * chunk) == CUDA_SUCCESS);
}

}  // namespace test_cuda_virtual_memory
