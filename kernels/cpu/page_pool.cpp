#include "kernels/cpu/page_pool.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace trireme {
namespace {

char* aligned(char* at, std::size_t to) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return at + ((address + to - 1) / to * to - address);
}

/// How many of the 512 small pages of a huge one have memory; 0 if the system does not say.
long resident(char* at, std::size_t bytes) {
  std::array<unsigned char, 512> there{};
  if (mincore(at, bytes, there.data()) != 0) return 0;
  return std::ranges::count_if(there, [](unsigned char one) { return (one & 1) != 0; });
}

void give_back(char* begin, char* end) {
  if (begin < end) (void)madvise(begin, static_cast<std::size_t>(end - begin), MADV_DONTNEED);
}

void* map(void* at, std::size_t bytes, int flags) {
  void* got = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (got != MAP_FAILED) (void)madvise(got, bytes, MADV_HUGEPAGE);
  return got;
}

}  // namespace

/// Whether there is a pool. The first call reserves its addresses.
bool PagePool::open() noexcept {
  if (std::exchange(opened_, true)) return works_;
  void* range = map(nullptr, (most + 1) * page, 0);
  if (range == MAP_FAILED) return false;
  slots_ = aligned(static_cast<char*>(range), page);
  return works_ = true;
}

/// Moves the memory of a huge page. `from` has none then and reads as zeros.
bool PagePool::move(char* from, char* to) noexcept {
  // Not mremap(): UCX, which MPICH may load, replaces it by a function that does not pass the target on.
  if (syscall(SYS_mremap, from, page, page, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) != -1) return true;
  works_ = false;
  (void)map(to, page, MAP_FIXED);  // a move that fails may have removed the target's mapping
  return false;
}

void PagePool::discard(char* begin, char* end) noexcept {
  const std::lock_guard lock(mutex_);
  for (char* at = aligned(begin, page); at + page <= end && number(at) < reach; at += page) {
    discarded_.set(number(at));
    if (kept_ < most && open() && resident(at, page) == 512 && move(at, slot(kept_))) ++kept_;
  }
  give_back(begin, end);  // all of it: libraries that remember which memory a network card knows watch madvise()
}

void PagePool::restore(char* begin, char* end) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = number(begin); begin < end && i <= number(end - 1) && i < reach; ++i) {
    char* const at = arena_.base() + i * page;
    if (discarded_[i] && kept_ > 0 && works_ && resident(at, page) == 0 && move(slot(kept_ - 1), at)) --kept_;
    discarded_.reset(i);
  }
}

void PagePool::clear() noexcept {
  const std::lock_guard lock(mutex_);
  give_back(slots_, slot(kept_));
  kept_ = 0;
}

void PagePool::zero(char* begin, char* end) noexcept {
  const std::lock_guard lock(mutex_);
  give_back(begin, end);
  for (std::size_t i = number(begin); begin < end && i <= number(end - 1) && i < reach; ++i) discarded_.reset(i);
}

}  // namespace trireme
