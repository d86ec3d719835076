// Device memory: blocks that are NaN throughout until they are written, between margins that are looked at when a block
// is given back, behind a fence that keeps the host out (where the processor has protection keys). Under
// AddressSanitizer each block is one of malloc's, whose ends it watches itself.
#pragma once
#include <cstddef>
#include <optional>

namespace emulator {

struct Block {
  int device;
  char* data;
  std::size_t bytes;
  bool is_mapped = false;  ///< a stretch of virtual memory, which cudaFree does not know
};

/// Aligned to 256; null when the device's memory is used up.
void* allocate(int device, std::size_t bytes);
/// False when no block begins there. Ends the process where something was written beyond the block.
bool give_back(void*);
/// The live block that holds p.
std::optional<Block> find(const void* p);
/// Counts bytes of a device that are not in blocks; false: it has not that many.
bool charge(int device, std::size_t bytes);
void uncharge(int device, std::size_t bytes);
std::size_t bytes_in_use(int device);
std::size_t most_in_use(int device);

/// Pinned memory of the host.
void* allocate_host(std::size_t bytes);
bool give_back_host(void*);
std::optional<Block> find_host(const void* p);  ///< device: 0

}  // namespace emulator
