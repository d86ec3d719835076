// What a switch between fibers needs of the processor: switch_x86_64.cpp, elsewhere the slow switch_ucontext.cpp.
#pragma once
#include <cstddef>

/// The stack [low, low + bytes) as emulator_switch leaves one, so that a switch to it calls entry().
void* emulator_prepare_stack(char* low, std::size_t bytes, void (*entry)());
/// Leaves the stack pointer in *from, and goes on where emulator_switch was called on the stack `to`.
extern "C" void emulator_switch(void** from, void* to);
