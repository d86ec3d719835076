#include "kernels/cuda/graph.h"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace trireme::gpu {
namespace {

constexpr auto op = "cuda graph";

/// Streams for captures, per device. None is destroyed: cuDNN's handle keeps the last one that it was given.
class CaptureStreams {
 public:
  cudaStream_t take(const On& on) {
    std::lock_guard lock(mutex_);
    auto& idle = idle_[on.device().index];
    cudaStream_t stream = nullptr;
    if (idle.empty())
      ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), op);
    else {
      stream = idle.back();
      idle.pop_back();
    }
    return stream;
  }
  void give(Device device, cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    idle_[device.index].push_back(stream);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<cudaStream_t>> idle_;
};
CaptureStreams& capture_streams() {
  static CaptureStreams& all = *new CaptureStreams;
  return all;
}

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(Device device, GraphMemory& memory) : device_(device), memory_(memory), number_(memory.add()) {
    const On on(device, op);
    for (cudaStream_t* stream : {&stream_, &side_}) *stream = capture_streams().take(on);
  }
  ~CudaGraph() override {
    try {
      const On on(device_, op);
      cudaGraph_t captured = nullptr;
      if (capture_ && cudaStreamEndCapture(stream_, &captured) == cudaSuccess) (void)cudaGraphDestroy(captured);
      leave();
      (void)cudaStreamSynchronize(on.stream());  // a part may be running
      for (cudaGraphExec_t part : parts_) (void)cudaGraphExecDestroy(part);
      for (cudaStream_t stream : {stream_, side_}) capture_streams().give(device_, stream);
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
    check(!capture(device_), op, "another capture is in progress");
    // Relaxed: allocating memory on the other stream is allowed.
    ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), op);
    capture_.emplace(Capture{device_, stream_, side_, number_});
    set_capture(&*capture_);
  }

  void end() override {
    check(capture_.has_value(), op, "no capture is in progress");
    check(!capture_->forked, op, "capturing a CUDA graph: it cannot be cut within concurrent branches");
    const On on(device_, op);
    leave();
    cudaGraph_t captured = nullptr;
    ok(cudaStreamEndCapture(stream_, &captured), op);
    cudaGraphExec_t part = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&part, captured, 0);
    (void)cudaGraphDestroy(captured);
    ok(status, op);
    parts_.push_back(part);
  }

  void start(std::size_t part) override {
    const On on(device_, op);
    check(part < parts_.size(), op, "there is no part {}, the number of parts is {}", part, parts_.size());
    ok(cudaGraphLaunch(parts_[part], on.stream()), op);
  }

 private:
  void leave() {
    if (!capture_) return;
    set_capture(nullptr);
    for (const auto& blocks : {capture_->released, capture_->held})
      released_.insert(released_.end(), blocks.begin(), blocks.end());
    capture_.reset();
  }

  Device device_;
  GraphMemory& memory_;
  int number_;
  cudaStream_t stream_ = nullptr, side_ = nullptr;
  std::optional<Capture> capture_;
  std::vector<std::pair<void*, std::size_t>> released_;
  std::vector<cudaGraphExec_t> parts_;
};

/// Work submitted to `later` after this call runs after all work submitted to `first` before it.
void follow(cudaStream_t first, cudaStream_t later) {
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), op);
  ok(cudaEventRecord(event, first), op);
  ok(cudaStreamWaitEvent(later, event), op);
  ok(cudaEventDestroy(event), op);
}

/// While it lives, work is submitted to the side stream.
class OnSide {
 public:
  explicit OnSide(Capture& c) : capture_(c) { std::swap(c.stream, c.side); }
  ~OnSide() { std::swap(capture_.stream, capture_.side); }
  OnSide(const OnSide&) = delete;

 private:
  Capture& capture_;
};

}  // namespace

std::vector<std::pair<void*, std::size_t>> capture_fork_join(Capture& c, const std::function<void()>& first,
                                                             const std::function<void()>& second) {
  follow(c.stream, c.side);
  c.forked = true;
  {
    const OnSide side(c);
    second();
  }
  first();
  follow(c.side, c.stream);
  c.forked = false;
  return std::exchange(c.held, {});
}

std::unique_ptr<DeviceGraph> make_graph(Device device, GraphMemory& memory) {
  return std::make_unique<CudaGraph>(device, memory);
}

}  // namespace trireme::gpu
