#include "kernels/cuda/graph.h"

#include <optional>

namespace trireme::gpu {
namespace {

constexpr auto op = "cuda graph";

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(Device device, GraphMemory& memory) : device_(device), memory_(memory), number_(memory.add()) {
    const On on(device, op);
    ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), op);
  }
  ~CudaGraph() override {
    try {
      const On on(device_, op);
      cudaGraph_t noted = nullptr;
      if (capture_ && cudaStreamEndCapture(stream_, &noted) == cudaSuccess) (void)cudaGraphDestroy(noted);
      leave();
      (void)cudaStreamSynchronize(on.stream());  // a part may be running
      for (cudaGraphExec_t part : parts_) (void)cudaGraphExecDestroy(part);
      (void)cudaStreamDestroy(stream_);
      (void)cudaGetLastError();
      for (const auto& [block, bytes] : released_) runtime(DeviceKind::cuda).release(block, bytes, device_);
      std::vector<GraphMemory::Segment> unused;
      memory_.remove(number_, unused);
      for (const auto& s : unused) runtime(DeviceKind::cuda).release(s.memory, s.bytes, device_);
    } catch (...) {  // the device is gone
    }
  }

  void begin() override {
    const On on(device_, op);
    check(!capture(device_), op, "another one is being noted");
    // Relaxed: getting memory by way of the other stream is no fault.
    ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), op);
    capture_.emplace(Capture{device_, stream_, number_});
    set_capture(&*capture_);
  }

  void end() override {
    check(capture_.has_value(), op, "nothing is being noted");
    const On on(device_, op);
    leave();
    cudaGraph_t noted = nullptr;
    ok(cudaStreamEndCapture(stream_, &noted), op);
    cudaGraphExec_t part = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&part, noted, 0);
    (void)cudaGraphDestroy(noted);
    ok(status, op);
    parts_.push_back(part);
  }

  void start(std::size_t part) override {
    const On on(device_, op);
    check(part < parts_.size(), op, "part {} of {} is asked for", part, parts_.size());
    ok(cudaGraphLaunch(parts_[part], on.stream()), op);
  }

 private:
  void leave() {
    if (!capture_) return;
    set_capture(nullptr);
    released_.insert(released_.end(), capture_->released.begin(), capture_->released.end());
    capture_.reset();
  }

  Device device_;
  GraphMemory& memory_;
  int number_;
  cudaStream_t stream_ = nullptr;
  std::optional<Capture> capture_;
  std::vector<std::pair<void*, std::size_t>> released_;
  std::vector<cudaGraphExec_t> parts_;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_graph(Device device, GraphMemory& memory) {
  return std::make_unique<CudaGraph>(device, memory);
}

}  // namespace trireme::gpu
