#include <cstdint>

#include "switch.h"

// The registers that a function must keep lie on the stack meanwhile; the others its caller has saved.
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch, .-emulator_switch
)");

void* emulator_prepare_stack(char* low, std::size_t bytes, void (*entry)()) {
  constexpr int saved = 6;
  auto* at = reinterpret_cast<std::uintptr_t*>(reinterpret_cast<std::uintptr_t>(low + bytes) & ~std::uintptr_t{15});
  *--at = 0;  // where entry() would return to, at an address that calls leave it at
  *--at = reinterpret_cast<std::uintptr_t>(entry);
  for (int i = 0; i < saved; ++i) *--at = 0;
  return at;
}
