// NamedRange: what this thread is busy with (a phase of a step, a layer), for messages about memory and for profilers
// that show named ranges (NVTX, where the CUDA backend is open).
#pragma once
#include <string>

namespace trireme {

class NamedRange {
 public:
  /// name must stay where it is (a literal, or from intern()); null: no range.
  explicit NamedRange(const char* name) : name_(name), outer_(innermost_) {
    if (name_ != nullptr) enter();
  }
  ~NamedRange() {
    if (name_ != nullptr) leave();
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

  /// The innermost name; null: none.
  static const char* current() { return innermost_ != nullptr ? innermost_->name_ : nullptr; }
  /// " in backward, layer1.0", from the outermost; empty without a range. For the end of a message.
  static std::string place();
  /// A copy of the name that is never destroyed, one per text.
  static const char* intern(const std::string& name);

  /// Functions that a profiler gets called, by the thread of the range.
  struct Listener {
    void (*enter)(const char* name);  ///< a range begins
    void (*leave)();                  ///< the innermost range ends
  };
  /// Called once, by a backend with a profiler.
  static void listen(const Listener*);

 private:
  void enter();
  void leave();
  static thread_local constinit NamedRange* innermost_;

  const char* name_;
  NamedRange* outer_;
};

}  // namespace trireme
