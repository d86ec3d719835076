#include "kernels/cuda/device.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "kernels/contracts/move.h"
#include "kernels/core/runtime.h"

namespace trireme::gpu {
namespace {

/// The objects of a device that live as long as the process; created at the first use.
struct State {
  std::once_flag made;
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  Fault* fault = nullptr;
  std::atomic<bool> failed = false;
  std::mutex mutex;  // of what follows
  std::string failure;
  ErrorKind failure_kind = ErrorKind::communicator;

  void make(int index, std::string_view op) {
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), op);
    ok(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, index), op);
    void* mapped = nullptr;
    ok(cudaHostAlloc(&mapped, sizeof(Fault), cudaHostAllocMapped), op);
    fault = new (mapped) Fault{};
    // Released blocks stay in the pool: a training step in its steady state makes no request to the driver.
    cudaMemPool_t pool = nullptr;
    ok(cudaDeviceGetDefaultMemPool(&pool, index), op);
    auto all = static_cast<std::uint64_t>(-1);
    ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), op);
  }
};

// Never destroyed: tensors with static storage may release their blocks after main.
std::vector<State>& states() {
  static std::vector<State>& all = *[] {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    return new std::vector<State>(static_cast<std::size_t>(count));
  }();
  return all;
}
thread_local Capture* current_capture = nullptr;
State& state(int index) { return states()[static_cast<std::size_t>(index)]; }

/// An error that a kernel left: from then on every call fails with it.
bool is_left_by_kernel(cudaError_t status) {
  constexpr cudaError_t all[] = {cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorIllegalInstruction,
                                 cudaErrorLaunchFailure};
  return std::find(std::begin(all), std::end(all), status) != std::end(all);
}

}  // namespace

void ok(cudaError_t status, std::string_view op) {
  if (status == cudaSuccess) [[likely]]
    return;
  (void)cudaGetLastError();  // the next call is not to find this one's
  const bool left = is_left_by_kernel(status);
  fail(status == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::device, op, "CUDA says: {} ({}){}",
       cudaGetErrorString(status), cudaGetErrorName(status),
       left ? "; a kernel that was started before did it: CUDA_LAUNCH_BLOCKING=1 shows which" : "");
}

// Sets the device in every call, since other libraries and the program may make another device current.
On::On(Device device, std::string_view op) : index_(device.index), op_(op) {
  const auto count = static_cast<int>(states().size());
  check(device.kind == DeviceKind::cuda && index_ >= 0 && index_ < count, ErrorKind::device, op,
        "there is no {}; this machine has {} GPU{}", device, count, count == 1 ? "" : "s");
  thread_local int chosen = -1;  // by this thread; one that never chose has no context yet
  int current = -1;
  if (chosen == index_ && cudaGetDevice(&current) == cudaSuccess && current == index_) [[likely]]
    return;
  ok(cudaSetDevice(index_), op);
  std::call_once(state(index_).made, [&] { state(index_).make(index_, op); });
  chosen = index_;
}
int On::multiprocessors() const { return state(index_).multiprocessors; }
cudaStream_t On::stream() const {
  const Capture* capturing = capture(device());
  return capturing ? capturing->stream : main_stream();
}
cudaStream_t On::main_stream() const { return state(index_).stream; }
Fault* On::fault() const { return state(index_).fault; }

Capture* capture(Device device) {
  return current_capture && current_capture->device == device ? current_capture : nullptr;
}
void set_capture(Capture* c) { current_capture = c; }
void refuse_capture(const On& on) {
  check(!capture(on.device()), on.op(),
        "{} is capturing a CUDA graph: the host cannot wait for it or send it data until the capture ends",
        on.device());
}

void set_failure(Device device, const std::string& text, ErrorKind kind) {
  State& s = state(device.index);
  std::lock_guard lock(s.mutex);
  s.failure = text;
  s.failure_kind = kind;
  s.failed = !text.empty();
}

void check_fault(const On& on) {
  if (State& s = state(on.device().index); s.failed) [[unlikely]] {
    std::lock_guard lock(s.mutex);
    if (!s.failure.empty()) throw Error(s.failure, std::source_location::current(), s.failure_kind);
  }
  Fault& f = *on.fault();
  if (f.set == 0) [[likely]]
    return;
  const Fault seen = f;
  f = {};
  if (seen.set == 2)
    fail(ErrorKind::data, kernel::Take::name, "id {} is {}, expected one in [0, {})", seen.row, seen.label,
         seen.classes);
  fail(ErrorKind::data, "cross_entropy", "row {} has label {}, but there are {} classes: labels must lie in [0, {})",
       seen.row, seen.label, seen.classes, seen.classes);
}

Scratch::Scratch(const On& on, std::size_t bytes) : device_(on.device()), bytes_(bytes) {
  if (bytes > 0) data_ = runtime(DeviceKind::cuda).allocate(bytes, device_);
}
Scratch::~Scratch() {
  if (bytes_ > 0) runtime(DeviceKind::cuda).release(data_, bytes_, device_);
}

}  // namespace trireme::gpu
