// VirtualMemory: device blocks of which parts can be without memory, by CUDA's virtual memory management (CUDA Driver
// API; PyTorch's expandable segments are made of the same calls). A block is a range of addresses that stays, in chunks
// of the device's granularity (2 MiB), each mapped to memory of its own or to none.
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

/// Thread-safe. While work of the device may still use a chunk that was discarded, it stays mapped ("leaving"); whoever
/// comes by after that unmaps it. Nobody waits for the device but to find memory where none is left.
class VirtualMemory {
 public:
  /// count is told of bytes of chunks: that they are in use from now on, or (negative) no longer, in stream order.
  explicit VirtualMemory(std::function<void(std::ptrdiff_t bytes)> count) : count_(std::move(count)) {}

  /// A block with memory behind all of it. Null: it has not one chunk, or the device, its driver or what memory is left
  /// does not allow it.
  void* allocate(const On&, std::size_t bytes);
  /// Gives all of a block back, in stream order. False: it is not one of allocate().
  bool release(const On&, void* block, std::size_t bytes);
  /// Gives back the chunks that lie wholly in a part of a block, in stream order; the rest of the part becomes NaN.
  /// False: it lies in no block of allocate().
  bool discard(const On&, void* from, std::size_t bytes);
  /// Whether all chunks of all blocks are there: restore() has nothing to do. One atomic load.
  bool whole() const { return missing_.load(std::memory_order_relaxed) == 0; }
  /// Puts memory behind all of a part of a block again. What it holds is undefined, and what was discarded does not
  /// come back. False: there is no memory. Throws Error for a chunk that is missing while a graph is captured, which
  /// would use it in every launch.
  bool restore(const On&, void* from, std::size_t bytes);
  /// Bytes of a part of a block that have memory and were not discarded.
  std::size_t resident(const void* from, std::size_t bytes);
  /// Unmaps what the device is done with; wait: with all that is leaving. Returns whether memory came free.
  bool reclaim(const On&, bool wait);
  bool leaving() const { return leaving_.load(std::memory_order_relaxed) > 0; }  ///< reclaim() may find something

 private:
  enum class State : std::uint8_t { gone, mapped, leaving };
  struct Chunk {
    State state = State::gone;
    std::uint64_t batch = 0;  // that it leaves with
  };
  struct Block {
    std::uintptr_t begin;
    std::size_t bytes, chunk;
    int device;
    std::vector<Chunk> chunks;
    std::uintptr_t at(std::size_t i) const { return begin + i * chunk; }
  };
  /// Chunks that were discarded at once, until the event has passed. ends: the block with them.
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
    std::vector<cudaEvent_t> events;  // that no batch has
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
  std::atomic<std::size_t> missing_ = 0,      // chunks that are gone or leaving
      leaving_ = 0,                           // batches
      least_ = static_cast<std::size_t>(-1);  // no block is shorter
  std::uint64_t next_ = 1;
};

}  // namespace trireme::gpu
