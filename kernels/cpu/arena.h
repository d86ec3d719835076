// Arena: where big blocks live. One range of addresses, backed by huge pages as it is touched; blocks are placed
// best-fit and join their neighbours when they are released, so that a step's later tensors of other sizes use the
// memory of its earlier ones. A released block stays mapped: the next step takes no page fault.
#pragma once
#include <cstddef>
#include <mutex>

#include "kernels/core/best_fit.h"

namespace trireme {

class Arena {
 public:
  /// Null when neither the range nor the system has room. Aligned to a page of 4 KiB.
  void* allocate(std::size_t bytes);
  void release(void* block, std::size_t bytes) noexcept;

 private:
  void reserve();

  std::mutex mutex_;
  bool reserved_ = false;  // or found impossible
  char* base_ = nullptr;
  std::size_t capacity_ = 0, top_ = 0;  // bytes of the range; of it ever used
  BestFit free_;                        // offsets below top_
};

}  // namespace trireme
