#include <ucontext.h>

#include <cstdint>

#include "switch.h"

// Where the registers of a stack lie is the stack pointer that others keep.
void* emulator_prepare_stack(char* low, std::size_t bytes, void (*entry)()) {
  constexpr std::uintptr_t alignment = 64;
  const auto at = (reinterpret_cast<std::uintptr_t>(low) + bytes - sizeof(ucontext_t)) / alignment * alignment;
  auto* context = reinterpret_cast<ucontext_t*>(at);
  getcontext(context);
  context->uc_stack.ss_sp = low;
  context->uc_stack.ss_size = at - reinterpret_cast<std::uintptr_t>(low);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}

extern "C" void emulator_switch(void** from, void* to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}
