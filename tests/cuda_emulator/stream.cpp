#include "stream.h"

#include <map>
#include <thread>
#include <utility>

#include "emulator/device_access.h"
#include "emulator/launch.h"
#include "engine.h"
#include "memory.h"
#include "settings.h"
#include "virtual_memory.h"

namespace emulator {
namespace {

void run(const std::function<void()>& work) {
  const DeviceAccess access;
  try {
    work();
  } catch (const std::exception& e) { record_failure(e.what()); } catch (...) {
    record_failure("a call on a stream threw");
  }
}

thread_local int current = 0;
thread_local int captured_streams = 0;

struct Failures {
  std::mutex mutex;
  bool pending = false;
  std::deque<std::string> texts;  // all that there were: callers hold pointers to them
};
Failures& failures() {
  static Failures& f = *new Failures;
  return f;
}

/// Engines that no thread has; their stacks are what is worth keeping.
struct Pool {
  std::mutex mutex;
  std::vector<Engine*> idle;
};
Pool& pool() {
  static Pool& p = *new Pool;
  return p;
}
struct ThreadStream {
  Engine* engine = nullptr;
  Engine& get() {
    if (engine == nullptr) {
      std::lock_guard lock(pool().mutex);
      if (!pool().idle.empty()) {
        engine = pool().idle.back();
        pool().idle.pop_back();
        engine->reset();
      } else {
        engine = new Engine;
      }
    }
    return *engine;
  }
  ~ThreadStream() {
    if (engine == nullptr) return;
    std::lock_guard lock(pool().mutex);
    pool().idle.push_back(engine);
  }
};
thread_local ThreadStream seat;

}  // namespace

void EventMark::reach() {
  std::lock_guard lock(mutex_);
  reached_ = true;
  when_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}
void EventMark::await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached_; });
}
bool EventMark::reached() {
  std::lock_guard lock(mutex_);
  return reached_;
}
std::chrono::steady_clock::time_point EventMark::when() {
  std::lock_guard lock(mutex_);
  return when_;
}

CUstream_st& stream_of(CUstream_st* s) {
  if (s != nullptr) return *s;
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<int, CUstream_st*>;
  std::lock_guard lock(mutex);
  CUstream_st*& found = all[current];
  if (found == nullptr) found = new CUstream_st(current);
  return *found;
}

void record_failure(const std::string& text) {
  Failures& f = failures();
  std::lock_guard lock(f.mutex);
  if (!f.pending) f.texts.push_back(text);
  f.pending = true;
}
bool take_failure() {
  Failures& f = failures();
  std::lock_guard lock(f.mutex);
  return std::exchange(f.pending, false);
}
const char* failure_text() {
  Failures& f = failures();
  std::lock_guard lock(f.mutex);
  return f.texts.empty() ? "unspecified launch failure" : f.texts.back().c_str();
}

bool captures() { return captured_streams > 0; }
int current_device() { return current; }
void set_current_device(int device) { current = device; }

void enqueue(CUstream_st* stream, std::function<void()> work) { stream_of(stream).enqueue(std::move(work)); }
int device_of(CUstream_st* stream) { return stream_of(stream).device; }

bool on_device(const void* p, std::size_t bytes, int device) {
  if (const auto b = find(p))
    return b->is_mapped ? is_accessible(p, bytes, device)
                        : b->device == device && static_cast<const char*>(p) + bytes <= b->data + b->bytes;
  const auto h = find_host(p);
  return h && static_cast<const char*>(p) + bytes <= h->data + h->bytes;
}

cudaError_t refuse(const cudaLaunchConfig_t& c) {
  constexpr unsigned most_blocks = 0x7fffffffu, most_beside = 65535, most_deep = 64;
  const auto threads = 1ull * c.blockDim.x * c.blockDim.y * c.blockDim.z;
  const bool fits = threads > 0 && threads <= most_threads && c.blockDim.z <= most_deep && c.gridDim.x > 0 &&
                    c.gridDim.x <= most_blocks && c.gridDim.y > 0 && c.gridDim.y <= most_beside && c.gridDim.z > 0 &&
                    c.gridDim.z <= most_beside && c.dynamicSmemBytes == 0;
  if (!fits) return cudaErrorInvalidConfiguration;
  return stream_of(c.stream).device == current ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t refuse_pointer(const void* p, cudaStream_t stream) {
  if (p == nullptr || on_device(p, 1, device_of(stream))) return cudaSuccess;
  if (!find(p) && is_reserved(p))
    return cudaSuccess;  // it may be where a block begins of which the kernel reads later parts
  const auto block = find(p);
  record_failure(block ? "a kernel is given a pointer to memory of another device"
                       : "a kernel is given a pointer that is neither to a live block of device memory nor to pinned "
                         "memory");
  (void)take_failure();
  return cudaErrorLaunchFailure;
}

cudaError_t launch(const cudaLaunchConfig_t& c, std::function<void()> thread) {
  enqueue(c.stream, [blocks = c.gridDim, threads = c.blockDim, thread = std::move(thread)] {
    if (const std::string failure = seat.get().run(blocks, threads, thread); !failure.empty()) record_failure(failure);
  });
  return take_failure() ? cudaErrorLaunchFailure : cudaSuccess;
}

}  // namespace emulator

void CUstream_st::enqueue(std::function<void()> work) {
  if (capture_) {
    if (capture_->origin != this) capture_->open.insert(this);
    return capture_->noted.push_back(std::move(work));
  }
  if (!emulator::settings().async) {
    std::lock_guard lock(order_);
    return emulator::run(work);
  }
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
  if (!std::exchange(started_, true)) std::thread([this] { work_off(); }).detach();
}

void CUstream_st::work_off() {
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [&] { return !queue_.empty(); });
    lock.unlock();
    emulator::run(queue_.front());  // deque: others are added behind it meanwhile
    lock.lock();
    queue_.pop_front();
    changed_.notify_all();
  }
}

void CUstream_st::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty(); });
}
bool CUstream_st::busy() {
  std::lock_guard lock(mutex_);
  return !queue_.empty();
}

cudaError_t CUstream_st::begin_capture() {
  if (capture_) return cudaErrorInvalidValue;
  capture_ = std::make_shared<emulator::Capture>(emulator::Capture{this});
  ++emulator::captured_streams;
  return cudaSuccess;
}
cudaError_t CUstream_st::end_capture(std::vector<std::function<void()>>& noted) {
  if (!capture_ || capture_->origin != this) return cudaErrorInvalidValue;
  const auto capture = std::exchange(capture_, nullptr);
  --emulator::captured_streams;
  for (CUstream_st* stream : capture->joined) stream->capture_ = nullptr;
  if (capture->broken) return cudaErrorStreamCaptureInvalidated;
  if (!capture->open.empty()) return cudaErrorStreamCaptureUnjoined;
  noted = std::move(capture->noted);
  return cudaSuccess;
}
bool CUstream_st::break_capture() {
  if (capture_) capture_->broken = true;
  return capture_ != nullptr;
}
cudaError_t CUstream_st::follow(const std::shared_ptr<emulator::Capture>& capture, CUstream_st* from) {
  if (capture_ && capture_ != capture) {
    capture_->broken = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (!capture_) {
    capture_ = capture;
    capture->joined.insert(this);
  }
  if (from != this) capture->open.erase(from);
  if (this != capture->origin) capture->open.insert(this);
  return cudaSuccess;
}
