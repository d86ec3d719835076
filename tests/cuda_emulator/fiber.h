// Fibers: threads of execution that take turns by calling switch_to. One whose stack is not its own (the host thread's)
// is a Fiber too, from which the others are entered.
#pragma once
#include <cstddef>

namespace emulator {

class Fiber {
 public:
  Fiber() = default;  ///< for the stack that runs now
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// Gives it a stack, where it has none, on which switch_to calls entry(), which never returns; what ran there is
  /// forgotten.
  void prepare(void (*entry)());
  /// Goes on with `to`; returns when something switches here again.
  void switch_to(Fiber& to);
  /// The first words of entry().
  static void entered();

 private:
  void* at_ = nullptr;     // stack pointer while it does not run
  char* stack_ = nullptr;  // lowest address
  std::size_t color_ = 0;  // bytes left free at its upper end
  // What AddressSanitizer wants to know: the stack's ends, and where it keeps this fiber's frames.
  const void* low_ = nullptr;
  std::size_t size_ = 0;
  void* frames_ = nullptr;
};

}  // namespace emulator
