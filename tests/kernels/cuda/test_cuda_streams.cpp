// The emulator of CUDA (tests/cuda_emulator): streams, events and graphs.
#include "tests/kernels/cuda/on_device.h"
#include "tests/support/catch.h"

namespace test_cuda_streams {

using namespace trireme;
using namespace trireme::gpu;

TEST_CASE("streams wait for events of other streams", "[cuda_emulator]") {
  const On on(cuda(0), "test");
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t begun = nullptr, done = nullptr;
  ok(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), "test");
  ok(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), "test");
  ok(cudaEventCreate(&begun), "test");
  ok(cudaEventCreate(&done), "test");
  std::vector<int> seen;
  auto add = [](void* to) {
    auto& v = *static_cast<std::vector<int>*>(to);
    v.push_back(static_cast<int>(v.size()));
  };
  ok(cudaEventRecord(begun, first), "test");
  for (int i = 0; i < 3; ++i) ok(cudaLaunchHostFunc(first, add, &seen), "test");
  ok(cudaEventRecord(done, first), "test");
  ok(cudaStreamWaitEvent(second, done), "test");
  ok(cudaLaunchHostFunc(second, add, &seen), "test");
  ok(cudaStreamSynchronize(second), "test");
  CHECK(seen == std::vector<int>{0, 1, 2, 3});
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begun, done) == cudaSuccess);
  CHECK(milliseconds >= 0);
  for (cudaEvent_t e : {begun, done}) ok(cudaEventDestroy(e), "test");
  for (cudaStream_t s : {first, second}) ok(cudaStreamDestroy(s), "test");
}

TEST_CASE("captured streams record work, which graphs do", "[cuda_emulator]") {
  cudaStream_t main = nullptr, side = nullptr;
  ok(cudaStreamCreate(&main), "test");
  ok(cudaStreamCreate(&side), "test");
  cudaEvent_t forked = nullptr, joined = nullptr;
  ok(cudaEventCreate(&forked), "test");
  ok(cudaEventCreate(&joined), "test");
  const OnDevice<unsigned char> a(std::vector<unsigned char>(300, 1)), b(std::vector<unsigned char>(300, 1));
  ok(cudaStreamSynchronize(a.on.stream()), "test");
  const auto set = [](const OnDevice<unsigned char>& v, int value, cudaStream_t stream) {
    ok(cudaMemsetAsync(v.data, value, v.n, stream), "test");
  };
  const auto fork = [&] {
    ok(cudaEventRecord(forked, main), "test");
    ok(cudaStreamWaitEvent(side, forked), "test");
  };
  cudaGraph_t graph = nullptr;

  ok(cudaStreamBeginCapture(main, cudaStreamCaptureModeRelaxed), "test");
  set(a, 2, main);
  fork();
  set(b, 3, side);
  ok(cudaEventRecord(joined, side), "test");
  ok(cudaStreamWaitEvent(main, joined), "test");
  ok(cudaStreamEndCapture(main, &graph), "test");
  cudaGraphExec_t exec = nullptr;
  ok(cudaGraphInstantiate(&exec, graph, 0), "test");
  ok(cudaGraphDestroy(graph), "test");
  CHECK(a.read()[299] == 1);
  for (int time = 0; time < 2; ++time) {
    ok(cudaGraphLaunch(exec, main), "test");
    ok(cudaStreamSynchronize(main), "test");
    CHECK(a.read()[299] == 2);
    CHECK(b.read()[299] == 3);
    set(a, 4, main);
    set(b, 4, main);
    ok(cudaStreamSynchronize(main), "test");
  }
  ok(cudaGraphExecDestroy(exec), "test");

  ok(cudaStreamBeginCapture(main, cudaStreamCaptureModeRelaxed), "test");
  fork();
  set(b, 3, side);
  CHECK(cudaStreamEndCapture(main, &graph) == cudaErrorStreamCaptureUnjoined);
  set(b, 5, side);  // which is no longer captured
  ok(cudaStreamSynchronize(side), "test");
  CHECK(b.read()[299] == 5);

  ok(cudaStreamBeginCapture(main, cudaStreamCaptureModeRelaxed), "test");
  void* more = nullptr;
  CHECK(cudaMallocAsync(&more, 8, main) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamSynchronize(main) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(main, &graph) == cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
  for (cudaEvent_t event : {forked, joined}) ok(cudaEventDestroy(event), "test");
  for (cudaStream_t stream : {main, side}) ok(cudaStreamDestroy(stream), "test");
}

}  // namespace test_cuda_streams
