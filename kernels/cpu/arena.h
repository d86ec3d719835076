// Arena: the allocator of large blocks on the host. It has one range of addresses, with huge pages, in which blocks are
// placed best-fit; adjacent free blocks are merged, so that later tensors of a step can use the memory of earlier ones
// of other sizes. Released memory stays mapped: the next step has no page faults.
#pragma once
#include <cstddef>
#include <mutex>

#include "kernels/core/best_fit.h"

namespace trireme {

/// Bytes of addresses that this process may still map under its limit (ulimit -v); the largest number without one.
std::size_t addresses_left();

class Arena {
 public:
  /// times: addresses to reserve, in multiples of the machine's memory. Above 1 the arena is for blocks that are
  /// written in part, such as the weights of a model larger than a rank.
  explicit Arena(std::size_t times = 1) : times_(times) {}
  /// A block aligned to 4 KiB; null if neither the range nor the system has memory.
  void* allocate(std::size_t bytes);
  void release(void* block, std::size_t bytes) noexcept;
  /// Whether a block is in the range.
  bool owns(const void* block);
  /// The range's first address, a multiple of 2 MiB; null before the first block.
  char* base() const { return base_; }

 private:
  void reserve();

  const std::size_t times_;
  std::mutex mutex_;
  bool reserved_ = false;  // or found impossible
  char* base_ = nullptr;
  std::size_t capacity_ = 0, top_ = 0;  // bytes of the range, and the part ever used
  BestFit free_;                        // offsets below top_
};

}  // namespace trireme
