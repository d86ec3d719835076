// The emulated NCCL (tests/cuda_emulator/nccl.cpp): the rules of a split.
#include <nccl.h>

#include <array>
#include <thread>

#include "tests/kernels/cuda/on_device.h"
#include "tests/support/catch.h"

namespace test_cuda_emulated_nccl {

using namespace trireme;
using namespace trireme::gpu;

namespace {

/// Ranks 0 and 1 on devices 0 and 1.
struct Pair {
  Pair() {
    ncclUniqueId id{};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    for (int r : {0, 1}) {
      const On on(cuda(r), "test");
      REQUIRE(ncclCommInitRankConfig(&comms[r], 2, id, r, &config) == ncclInProgress);
    }
  }
  ~Pair() {
    for (ncclComm_t c : comms) (void)ncclCommAbort(c);
  }
  ncclResult_t split(int rank, ncclConfig_t* config = nullptr, int color = 0) {
    return ncclCommSplit(comms[rank], color, -rank, &parts[rank], config);
  }

  std::array<ncclComm_t, 2> comms{}, parts{};
};

ncclResult_t state(ncclComm_t comm) {
  ncclResult_t result = ncclSuccess;
  REQUIRE(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
  return result;
}

}  // namespace

TEST_CASE("NCCL's split wants a configuration and a color", "[cuda_emulator]") {
  Pair pair;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(pair.split(0, &config) == ncclInvalidArgument);  // blocks
  config.blocking = 0;
  config.splitShare = 1;
  CHECK(pair.split(0, &config) == ncclInvalidArgument);
  CHECK(pair.split(0, nullptr, NCCL_SPLIT_NOCOLOR) == ncclInvalidArgument);
  config.splitShare = 0;
  CHECK(pair.split(0, &config) == ncclSuccess);
}

TEST_CASE("NCCL's parent of a split is idle before it and settles before the part is used", "[cuda_emulator]") {
  Pair pair;
  const OnDevice<float> a(std::vector<float>{1, 2}, cuda(0)), b(std::vector<float>{3, 4}, cuda(1));
  const std::array both{&a, &b};
  const auto sum = [&](ncclComm_t comm, int r) {
    return ncclAllReduce(both[r]->data, both[r]->data, 2, ncclFloat32, ncclSum, comm, both[r]->on.stream());
  };
  const auto settled = [&](ncclComm_t comm) {
    while (state(comm) == ncclInProgress) std::this_thread::yield();
    return state(comm);
  };
  const auto accepted = [](ncclResult_t r) { return r == ncclSuccess || r == ncclInProgress; };
  CHECK(accepted(sum(pair.comms[0], 0)));
  CHECK(pair.split(0) == ncclInvalidUsage);  // the other rank has not begun to add
  CHECK(accepted(sum(pair.comms[1], 1)));
  for (int r : {0, 1}) {
    CHECK(settled(pair.comms[r]) == ncclSuccess);
    ok(cudaStreamSynchronize(both[r]->on.stream()), "test");
  }
  CHECK(pair.split(0) == ncclSuccess);
  CHECK(pair.parts[0] == nullptr);
  CHECK(sum(pair.comms[0], 0) == ncclInvalidUsage);
  CHECK(pair.split(1) == ncclSuccess);
  REQUIRE(pair.parts[0]);
  CHECK(sum(pair.parts[0], 0) == ncclInvalidUsage);  // nobody asked the parent
  for (int r : {0, 1}) CHECK(state(pair.comms[r]) == ncclSuccess);
  for (int r : {0, 1}) CHECK(accepted(sum(pair.parts[r], r)));
  for (int r : {0, 1}) {
    CHECK(both[r]->read() == std::vector<float>{8, 12});
    (void)ncclCommAbort(pair.parts[r]);
  }
}

}  // namespace test_cuda_emulated_nccl
