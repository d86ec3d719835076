// CallCapture: while a device's work is captured (CUDA graphs), calls between ranks on its tensors are not started but
// handed over, to be started at each replay between two parts of what was captured.
#pragma once
#include <functional>

namespace trireme {

class CallCapture {
 public:
  /// Starts a call and has the device wait for it.
  using Replayed = std::function<void()>;
  /// Of this thread's calls while the CallCapture lives; take() gets each in turn.
  explicit CallCapture(std::function<void(Replayed call)> take) : take_(std::move(take)), before_(current_) {
    current_ = this;
  }
  ~CallCapture() { current_ = before_; }
  CallCapture(const CallCapture&) = delete;
  CallCapture& operator=(const CallCapture&) = delete;

  static const CallCapture* current() { return current_; }  ///< this thread's; null: calls are started
  void take(Replayed call) const { take_(std::move(call)); }

 private:
  std::function<void(Replayed)> take_;
  CallCapture* before_;
  static inline thread_local CallCapture* current_ = nullptr;
};

}  // namespace trireme
