// Protection keys: memory that a thread may touch only while it holds the right to (emulator/device_access.h).
#pragma once
#include <cstddef>

#include "emulator/device_access.h"

namespace emulator {

/// Puts pages behind the fence; where there is none, they are plain memory.
void fence(void* pages, std::size_t bytes);
/// Whether there is one.
bool fenced();
/// Says, when the process is about to die of touching device memory from the host, that it did so. Cheap when called
/// again; test frameworks put their own handlers in its place.
void explain_faults();

}  // namespace emulator
