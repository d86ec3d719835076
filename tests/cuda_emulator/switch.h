// What a switch between fibers needs of the processor: one file for each kind, switch_*.cpp.
#pragma once

/// A stack that ends at `top` as emulator_switch leaves one, so that a switch to it calls entry().
void* emulator_prepare_stack(char* top, void (*entry)());
/// Leaves the stack pointer in *from, and goes on where emulator_switch was called on the stack `to`.
extern "C" void emulator_switch(void** from, void* to);
