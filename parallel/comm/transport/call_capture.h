// CallCapture: while a device's work is captured (CUDA graphs), communicator calls on its tensors are not started. The
// capture stores them and starts them at each replay, between two captured parts.
#pragma once
#include <functional>

namespace trireme {

/// Intercepts this thread's communicator calls while it lives.
class CallCapture {
 public:
  /// Starts a stored call and makes the device wait for it.
  using Replayed = std::function<void()>;
  /// take: gets each call of this thread, in order.
  explicit CallCapture(std::function<void(Replayed call)> take) : take_(std::move(take)), before_(current_) {
    current_ = this;
  }
  ~CallCapture() { current_ = before_; }
  CallCapture(const CallCapture&) = delete;
  CallCapture& operator=(const CallCapture&) = delete;

  static const CallCapture* current() { return current_; }  ///< this thread's capture; null: calls are started at once
  /// Stores a call; transports call this.
  void take(Replayed call) const { take_(std::move(call)); }

 private:
  std::function<void(Replayed)> take_;
  CallCapture* before_;
  static inline thread_local CallCapture* current_ = nullptr;
};

}  // namespace trireme
