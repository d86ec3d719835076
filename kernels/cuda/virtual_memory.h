// VirtualMemory: device blocks whose parts can be without physical memory, by CUDA's virtual memory management (CUDA
// Driver API; PyTorch's expandable segments use the same calls). A block has fixed addresses in chunks of the device's
// granularity (2 MiB). Each chunk has its own physical memory or none.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/cuda/device.h"

namespace trireme::gpu {

/// Thread-safe. A discarded chunk stays mapped ("leaving") while work of the device may still use it; a later call
/// unmaps it. Calls wait for the device only if there is no memory left otherwise.
class VirtualMemory {
 public:
  /// count(bytes) is called when chunks come into use (positive) or leave use (negative), in stream order.
  explicit VirtualMemory(std::function<void(std::ptrdiff_t bytes)> count) : count_(std::move(count)) {}

  /// A block with memory for all of it, or without memory (mapped: false), until restore() fills it with 0. Null if it
  /// is smaller than a chunk, or if the device, its driver or the remaining memory does not allow it.
  void* allocate(const On&, std::size_t bytes, bool mapped = true);
  /// Releases a block in stream order. False if it is not from allocate().
  bool release(const On&, void* block, std::size_t bytes);
  /// Releases the chunks that are entirely in a part of a block, in stream order; the rest of the part becomes NaN
  /// (zero: 0). False if the part is in no block of allocate().
  bool discard(const On&, void* from, std::size_t bytes, bool zero = false);
  /// Whether all chunks of all blocks have memory, so that restore() has nothing to do. One atomic load.
  bool whole() const { return missing_.load(std::memory_order_relaxed) == 0; }
  /// Gives all of a part of a block memory again. Contents are undefined, or 0 in chunks that are marked so; discarded
  /// contents do not come back. False if there is no memory. Throws Error for a missing chunk while a graph is
  /// captured, which would use the chunk in every launch.
  bool restore(const On&, void* from, std::size_t bytes);
  /// Bytes of a part of a block that have memory and are not discarded.
  std::size_t resident(const void* from, std::size_t bytes);
  /// Unmaps the chunks that the device no longer uses; wait: waits for all chunks that are leaving. Returns whether
  /// memory was freed.
  bool reclaim(const On&, bool wait);
  bool leaving() const { return leaving_.load(std::memory_order_relaxed) > 0; }  ///< reclaim() may free memory

 private:
  enum class State : std::uint8_t { gone, mapped, leaving };
  struct Chunk {
    State state = State::gone;
    std::uint64_t batch = 0;  // release batch of the chunk
    bool zero = false;        // without memory or leaving: restore() fills it with 0
  };
  struct Block {
    std::uintptr_t begin;
    std::size_t bytes, chunk;
    int device;
    std::vector<Chunk> chunks;
    std::uintptr_t at(std::size_t i) const { return begin + i * chunk; }
  };
  /// Chunks that were discarded together, until the event has passed. ends: their block is released with them.
  struct Batch {
    cudaEvent_t passed;
    std::uint64_t number;
    Block* block;
    std::size_t first, last;
    bool ends;
  };
  struct Card {
    std::size_t chunk = 0;  // 0: without virtual memory management
    std::deque<Batch> leaving;
    std::vector<cudaEvent_t> events;  // not used by any batch
  };

  Card& card(int device);
  Block* block_of(const void* p);
  bool map(Block&, std::size_t first, std::size_t last);
  void grant(int device);
  void leave(const On&, Card&, Block&, std::size_t first, std::size_t last, bool ends);
  void unmap(const Batch&);
  bool reclaim_passed(std::unique_lock<std::mutex>&, const On&, bool wait);
  void make_room(const On&);

  std::function<void(std::ptrdiff_t)> count_;
  std::mutex mutex_;
  std::map<int, Card> cards_;
  std::map<std::uintptr_t, Block> blocks_;
  std::atomic<std::size_t> missing_ = 0,      // chunks without memory or leaving
      leaving_ = 0,                           // batches that are leaving
      least_ = static_cast<std::size_t>(-1);  // bytes of the shortest block
  std::uint64_t next_ = 1;
};

}  // namespace trireme::gpu
