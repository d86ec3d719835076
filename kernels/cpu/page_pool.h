// PagePool: physical memory of parts of blocks that are unused now, for parts that are needed again. The system clears
// memory before it hands it out, which takes four times as long as filling it (0.5 ms for 2 MiB); to move pages takes
// 0.005 ms. So the weights that zero(3) gathers in a step use the pages of weights that it has dropped.
#pragma once
#include <bitset>
#include <cstddef>
#include <mutex>

#include "kernels/cpu/arena.h"

namespace trireme {

/// Moves whole huge pages (2 MiB) between blocks of an arena by mremap(2). Where the system has no MREMAP_DONTUNMAP
/// (before Linux 5.7), the pool stays empty. All functions take ranges of whole pages of 4 KiB within the arena.
/// Thread-safe.
class PagePool {
 public:
  explicit PagePool(const Arena& arena) : arena_(arena) {}
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  /// Takes the memory of [begin, end), which reads as zeros until restore(). Memory for which the pool has no room goes
  /// back to the system.
  void discard(char* begin, char* end) noexcept;
  /// Gives memory of the pool to the huge pages that [begin, end) touches, if they were discarded whole and not written
  /// since. Their contents are undefined afterwards. Without memory in the pool they get theirs on demand.
  void restore(char* begin, char* end) noexcept;
  /// Returns the memory of [begin, end) to the system. It reads as zeros, after restore(), too.
  void zero(char* begin, char* end) noexcept;
  /// Returns all memory of the pool to the system.
  void clear() noexcept;

 private:
  static constexpr std::size_t page = std::size_t{2} << 20;
  static constexpr std::size_t most = 64;  // pages kept: 128 MiB
  // A page that was moved becomes a mapping of its own, of which Linux allows a process 65,530.
  static constexpr std::size_t reach = 16384;  // the first 32 GiB of the arena take part

  char* slot(std::size_t i) const { return slots_ + i * page; }
  std::size_t number(const char* at) const { return static_cast<std::size_t>(at - arena_.base()) / page; }
  bool open() noexcept;
  bool move(char* from, char* to) noexcept;

  const Arena& arena_;
  std::mutex mutex_;
  bool opened_ = false, works_ = false;
  char* slots_ = nullptr;
  std::size_t kept_ = 0;          // slots below it have memory
  std::bitset<reach> discarded_;  // huge pages of the arena
};

}  // namespace trireme
