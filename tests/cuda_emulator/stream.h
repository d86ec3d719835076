// Streams and events: work in the order of its asking, done at once or on the stream's own thread; and the failures
// that later calls report.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "emulator/api.h"

namespace emulator {

/// One cudaEventRecord, which may be awaited after its event recorded something else, or is gone.
class EventMark {
 public:
  void reach();
  void await();
  bool reached();
  std::chrono::steady_clock::time_point when();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::chrono::steady_clock::time_point when_;
};

/// What streams note in the place of doing it: in the order of the calls, which no order of the streams contradicts.
struct Capture {
  CUstream_st* origin;
  std::vector<std::function<void()>> noted = {};
  std::set<CUstream_st*> joined = {}, open = {};  ///< by events; of them, those with work that nobody came back to
  bool broken = false;
};

/// The stream that s stands for: the null stream is one of the current device.
CUstream_st& stream_of(CUstream_st* s);

/// What a kernel or a library's call did wrong, for the next CUDA call to return as cudaErrorLaunchFailure.
void record_failure(const std::string& text);
bool take_failure();
const char* failure_text();

int current_device();
void set_current_device(int);

}  // namespace emulator

struct CUstream_st {
 public:
  explicit CUstream_st(int on) : device(on) {}
  void enqueue(std::function<void()> work);
  void wait();  ///< until all that was asked for is done
  bool busy();

  /// From now on work is noted, not done; unless something breaks it, end_capture() tells what.
  cudaError_t begin_capture();
  cudaError_t end_capture(std::vector<std::function<void()>>& noted);
  /// Breaks a capture: true where there is one. For calls that cannot be noted.
  bool break_capture();
  /// Comes after what `from` had noted: joins its capture, or brings it back to this stream.
  cudaError_t follow(const std::shared_ptr<emulator::Capture>& capture, CUstream_st* from);
  const std::shared_ptr<emulator::Capture>& capture() const { return capture_; }

  const int device;

 private:
  void work_off();

  std::recursive_mutex order_;  // held while work is done at once
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool started_ = false;
  std::shared_ptr<emulator::Capture> capture_;  // of the one thread that uses the stream meanwhile
};

struct CUevent_st {
  explicit CUevent_st(int on, unsigned with) : device(on), flags(with) {}
  const int device;
  const unsigned flags;
  std::mutex mutex;
  std::shared_ptr<emulator::EventMark> last;   ///< null: never recorded, which counts as reached
  std::shared_ptr<emulator::Capture> capture;  ///< that it was recorded in last; null: in none
  CUstream_st* from = nullptr;                 ///< of the capture
};
