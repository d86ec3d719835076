#include "kernels/cpu/arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <utility>

namespace trireme {
namespace {
constexpr std::size_t page = 4096, huge_page = std::size_t{2} << 20;
constexpr std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

std::size_t addresses_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::size_t>::max();
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto taken = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > taken ? static_cast<std::size_t>(limit.rlim_cur) - taken : 0;
}

/// Reserves times_ as many addresses as the machine has memory, at most 2^44 bytes. If the process has a limit, at most
/// half of what is left of it, or a quarter if times_ is above 1. Addresses cost nothing until they are touched.
void Arena::reserve() {
  if (std::exchange(reserved_, true)) return;
  std::size_t wanted =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (times_ > 1) wanted = std::max(wanted, std::min(times_ * wanted, std::size_t{1} << 44));
  wanted = std::min(wanted, addresses_left() / (times_ > 1 ? 4 : 2));
  wanted = rounded(wanted, huge_page);
  void* range =
      mmap(nullptr, wanted + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return;  // every block then comes from malloc
  base_ = reinterpret_cast<char*>(rounded(reinterpret_cast<std::size_t>(range), huge_page));
  capacity_ = wanted;
  (void)madvise(base_, capacity_, MADV_HUGEPAGE);  // refused: costs speed only
}

void* Arena::allocate(std::size_t bytes) {
  bytes = rounded(bytes, page);
  std::lock_guard lock(mutex_);
  reserve();
  if (const auto at = free_.take(bytes)) return base_ + *at;
  // The last free range may end at the top and be extended.
  const std::size_t at = free_.before(top_);
  if (base_ == nullptr || at + bytes > capacity_) return std::aligned_alloc(page, bytes);
  if (at < top_) free_.take_at(at);
  top_ = at + bytes;
  return base_ + at;
}

bool Arena::owns(const void* block) {
  std::lock_guard lock(mutex_);
  const auto* where = static_cast<const char*>(block);
  return base_ != nullptr && where >= base_ && where < base_ + capacity_;
}

void Arena::release(void* block, std::size_t bytes) noexcept {
  auto* where = static_cast<char*>(block);
  std::lock_guard lock(mutex_);
  if (base_ == nullptr || where < base_ || where >= base_ + capacity_) return std::free(block);
  try {
    free_.give(static_cast<std::size_t>(where - base_), rounded(bytes, page));
  } catch (
      const std::bad_alloc&) {  // no memory to record it: the block goes back to the system, its addresses are lost
    (void)madvise(block, rounded(bytes, page), MADV_DONTNEED);
  }
}

}  // namespace trireme
