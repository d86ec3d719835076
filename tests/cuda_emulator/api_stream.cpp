// The runtime API: streams and events.
#include <set>
#include <vector>

#include "emulator/api.h"
#include "emulator/device_access.h"
#include "finish.h"
#include "settings.h"
#include "stream.h"

using namespace emulator;

namespace {

/// Streams that were made and not destroyed, for cudaDeviceSynchronize.
struct Streams {
  std::mutex mutex;
  std::set<CUstream_st*> live;
  std::vector<CUstream_st*> gone;
};
Streams& streams() {
  static Streams& s = *new Streams;
  return s;
}

std::shared_ptr<EventMark> last_of(cudaEvent_t event) {
  std::lock_guard lock(event->mutex);
  return event->last;
}
std::shared_ptr<Capture> capture_of(cudaEvent_t event) {
  std::lock_guard lock(event->mutex);
  return event->capture;
}
/// Who waits for what was only noted would wait for ever.
bool breaks_capture(cudaEvent_t event) {
  const auto capture = capture_of(event);
  if (capture) capture->broken = true;
  return capture != nullptr;
}

}  // namespace

bool emulator::is_live(cudaStream_t stream) {
  std::lock_guard lock(streams().mutex);
  return stream == nullptr || streams().live.contains(stream);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st(current_device());
  std::lock_guard lock(streams().mutex);
  streams().live.insert(*stream);
  return finish(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return finish(cudaSuccess);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard lock(streams().mutex);
  if (streams().live.erase(stream) == 0) return finish(cudaErrorInvalidResourceHandle);
  stream->wait();
  if (settings().async)
    streams().gone.push_back(stream);  // its thread still looks at it
  else
    delete stream;
  return finish(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream_of(stream).break_capture()) return finish(cudaErrorStreamCaptureUnsupported);
  stream_of(stream).wait();
  return finish(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream_of(stream).break_capture()) return finish(cudaErrorStreamCaptureUnsupported);
  return finish(stream_of(stream).busy() ? cudaErrorNotReady : cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  CUstream_st& later = stream_of(stream);
  if (const auto capture = capture_of(event)) return finish(later.follow(capture, event->from));
  if (later.break_capture()) return finish(cudaErrorStreamCaptureIsolation);
  if (const auto mark = last_of(event)) enqueue(stream, [mark] { mark->await(); });
  return finish(cudaSuccess);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*f)(void*), void* data) {
  enqueue(stream, [f, data] { f(data); });
  return finish(cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() {
  stream_of(nullptr).wait();
  std::set<CUstream_st*> all;
  {
    std::lock_guard lock(streams().mutex);
    all = streams().live;
  }
  for (CUstream_st* s : all)
    if (s->device == current_device()) s->wait();
  return finish(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st(current_device(), flags);
  return finish(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return finish(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (device_of(stream) != event->device) return finish(cudaErrorInvalidResourceHandle);
  auto mark = std::make_shared<EventMark>();
  {
    std::lock_guard lock(event->mutex);
    event->last = mark;
    event->capture = stream_of(stream).capture();
    event->from = &stream_of(stream);
    if (event->capture) return finish(cudaSuccess);
  }
  enqueue(stream, [mark] { mark->reach(); });
  return finish(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (breaks_capture(event)) return finish(cudaErrorStreamCaptureUnsupported);
  const auto mark = last_of(event);
  return finish(!mark || mark->reached() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (breaks_capture(event)) return finish(cudaErrorStreamCaptureUnsupported);
  if (const auto mark = last_of(event)) mark->await();
  return finish(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const auto a = last_of(from), b = last_of(to);
  if (!a || !b || ((from->flags | to->flags) & cudaEventDisableTiming) != 0)
    return finish(cudaErrorInvalidResourceHandle);
  if (!a->reached() || !b->reached()) return finish(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(b->when() - a->when()).count();
  return finish(cudaSuccess);
}
