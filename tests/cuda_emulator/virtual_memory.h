// Virtual memory management: ranges of addresses, and memory that is mapped to parts of them. What is mapped to nothing
// is out of everybody's reach: a kernel or a copy that touches it ends the process.
#pragma once
#include <cstddef>
#include <optional>

#include "memory.h"

namespace emulator {

/// The stretch around p that is mapped to memory of one device; none: p is not mapped.
std::optional<Block> find_mapped(const void* p);
/// Whether a device may read and write all of this (cuMemSetAccess).
bool is_accessible(const void* p, std::size_t bytes, int device);
/// Whether p lies in a reserved range, mapped or not.
bool is_reserved(const void* p);

}  // namespace emulator
