#include "fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

#include "switch.h"

// Known to the linker only under AddressSanitizer.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** frames, const void* low, std::size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* frames, const void** low, std::size_t* size);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* from, std::size_t bytes);
}

namespace emulator {
namespace {

constexpr std::size_t guard = 4096, stack_bytes = std::size_t{128} << 10, color_step = 5 * 64;

thread_local Fiber* left = nullptr;  // the fiber of the last switch

}  // namespace

Fiber::~Fiber() {
  if (stack_ != nullptr) munmap(stack_, guard + stack_bytes);
}

void Fiber::prepare(void (*entry)()) {
  if (stack_ == nullptr) {
    // Memory comes with the first touch; the lowest page stays out of reach, to end a kernel whose stack runs over.
    void* mapped =
        mmap(nullptr, guard + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    stack_ = static_cast<char*>(mapped);
    mprotect(stack_, guard, PROT_NONE);
    // Stacks that began at one place of their pages would fight for one set of the cache.
    static std::atomic<std::size_t> made = 0;
    color_ = made.fetch_add(1, std::memory_order_relaxed) * color_step % guard;
  }
  low_ = stack_ + guard;
  size_ = stack_bytes;
  if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(low_, size_);
  frames_ = nullptr;
  at_ = emulator_prepare_stack(stack_ + guard, stack_bytes - color_, entry);
}

void Fiber::switch_to(Fiber& to) {
  left = this;
  if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(&frames_, to.low_, to.size_);
  emulator_switch(&at_, to.at_);
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(frames_, &left->low_, &left->size_);
}

void Fiber::entered() {
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(nullptr, &left->low_, &left->size_);
}

}  // namespace emulator
