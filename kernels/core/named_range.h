// NamedRange: the activity of this thread (a phase of a step, a layer) for the length of a scope. Messages about memory
// show it, and so do profilers (NVTX, if the CUDA backend is open).
#pragma once
#include <string>

namespace trireme {

class NamedRange {
 public:
  /// name must outlive the range: a literal, or a result of intern(). Null: no range.
  explicit NamedRange(const char* name) : name_(name), outer_(innermost_) {
    if (name_ != nullptr) enter();
  }
  ~NamedRange() {
    if (name_ != nullptr) leave();
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

  /// The innermost name of this thread, or null.
  static const char* current() { return innermost_ != nullptr ? innermost_->name_ : nullptr; }
  /// " in backward, layer1.0", outermost first; empty without a range. Append it to a message.
  static std::string place();
  /// A copy of the name that lives until the process ends; equal texts share one copy.
  static const char* intern(const std::string& name);

  /// Functions that are called on the thread of the range, for profilers.
  struct Listener {
    void (*enter)(const char* name);  ///< a range begins
    void (*leave)();                  ///< the innermost range ends
  };
  /// Sets the listener. Called once, by a backend that has a profiler.
  static void listen(const Listener*);

 private:
  void enter();
  void leave();
  static thread_local constinit NamedRange* innermost_;

  const char* name_;
  NamedRange* outer_;
};

}  // namespace trireme
