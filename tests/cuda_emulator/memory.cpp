#include "memory.h"

#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "emulator/warp.h"
#include "fence.h"
#include "settings.h"
#include "virtual_memory.h"

extern "C" [[gnu::weak]] void __asan_init();

namespace emulator {
namespace {

// A slot is: margin, block, margin. The margins and what nobody owns are 0xff: NaN, or -1.
constexpr std::size_t alignment = 256, before = alignment, behind = 64, looked_at = 4096, page = 4096;
constexpr std::size_t chunk = std::size_t{16} << 20;  // small slots are cut from these
constexpr std::size_t large = std::size_t{1} << 20;   // from here on a slot has pages of its own, and one out of reach
constexpr std::size_t huge = std::size_t{32} << 20;   // from here on free slots give their memory back

constexpr int unset = 0xff;

/// Sizes of slots: a power of two and its next 3 quarters.
std::size_t slot_bytes(std::size_t bytes) {
  const std::size_t whole = before + bytes + behind;
  const std::size_t step = std::max<std::size_t>(std::bit_floor(whole) / 4, alignment);
  return (whole + step - 1) / step * step;
}

bool untouched(const char* from, std::size_t bytes) {  // all bytes are equal when each equals the next
  return bytes == 0 || (static_cast<unsigned char>(*from) == unset && std::memcmp(from, from + 1, bytes - 1) == 0);
}

class Memory {
 public:
  void* allocate(int device, std::size_t bytes) {
    explain_faults();
    std::lock_guard lock(mutex_);
    Use& use = use_[device];
    if (!fits(use, bytes)) return nullptr;
    char* data = __asan_init != nullptr ? plain(bytes) : slot(bytes);
    if (data == nullptr) return nullptr;
    use.now += bytes;
    use.most = std::max(use.most, use.now);
    live_[reinterpret_cast<std::uintptr_t>(data)] = {device, data, bytes};
    return data;
  }

  bool give_back(void* p) {
    std::lock_guard lock(mutex_);
    const auto at = live_.find(reinterpret_cast<std::uintptr_t>(p));
    if (at == live_.end()) return false;
    const Block block = at->second;
    live_.erase(at);
    use_[block.device].now -= block.bytes;
    if (__asan_init != nullptr)
      std::free(block.data);
    else
      clear(block);
    return true;
  }

  std::optional<Block> find(const void* p) {
    std::lock_guard lock(mutex_);
    auto at = live_.upper_bound(reinterpret_cast<std::uintptr_t>(p));
    if (at == live_.begin()) return {};
    const Block& b = (--at)->second;
    if (static_cast<const char*>(p) >= b.data + std::max<std::size_t>(b.bytes, 1)) return {};
    return b;
  }

  bool charge(int device, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    Use& use = use_[device];
    if (!fits(use, bytes)) return false;
    use.now += bytes;
    use.most = std::max(use.most, use.now);
    return true;
  }
  void uncharge(int device, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    use_[device].now -= bytes;
  }
  std::size_t in_use(int device) {
    std::lock_guard lock(mutex_);
    return use_[device].now;
  }
  std::size_t most_in_use(int device) {
    std::lock_guard lock(mutex_);
    return use_[device].most;
  }

 private:
  struct Use {
    std::size_t now = 0, most = 0;
  };

  static bool fits(const Use& use, std::size_t bytes) {
    return bytes <= settings().memory && use.now + bytes <= settings().memory;
  }

  static char* plain(std::size_t bytes) {
    void* p = nullptr;
    if (posix_memalign(&p, alignment, std::max(bytes, std::size_t{1})) != 0) return nullptr;
    std::memset(p, unset, bytes);
    return static_cast<char*>(p);
  }

  static char* pages(std::size_t bytes) {
    void* p = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    mprotect(static_cast<char*>(p) + bytes, page, PROT_NONE);
    fence(p, bytes);
    return static_cast<char*>(p);
  }

  char* slot(std::size_t bytes) {
    const std::size_t size = slot_bytes(bytes);
    const DeviceAccess access;
    auto& list = free_[size];
    char* start = nullptr;
    if (!list.empty()) {
      start = list.back();
      list.pop_back();
      if (size >= huge)
        std::memset(start, unset, size);
      else if (!untouched(start, std::min(size, looked_at)))
        die("device memory was written after it was given back; bytes of its slot:", size);
    } else if (size >= large) {
      start = pages(size);
      if (start == nullptr) return nullptr;
      std::memset(start, unset, size);
    } else {
      if (left_ < size) {
        fresh_ = pages(chunk);  // what was left of the chunk before is lost
        if (fresh_ == nullptr) return nullptr;
        left_ = chunk;
      }
      start = fresh_;
      fresh_ += size;
      left_ -= size;
      std::memset(start, unset, size);
    }
    return start + before;
  }

  void clear(const Block& b) {
    const std::size_t size = slot_bytes(b.bytes);
    char* const start = b.data - before;
    const DeviceAccess access;
    if (!untouched(start, before)) die("something wrote before the start of a device block of bytes:", b.bytes);
    const std::size_t rest = size - before - b.bytes;
    if (!untouched(b.data + b.bytes, std::min(rest, looked_at)))
      die("something wrote beyond the end of a device block of bytes:", b.bytes);
    if (size >= huge)
      madvise(start, size, MADV_DONTNEED);
    else
      std::memset(b.data, unset, b.bytes);
    free_[size].push_back(start);
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Block> live_;
  std::map<int, Use> use_;
  std::map<std::size_t, std::vector<char*>> free_;  // by the slot's size
  char* fresh_ = nullptr;
  std::size_t left_ = 0;
};

/// Memory is never given back to the system: tensors with static storage outlive main.
Memory& memory() {
  static Memory& m = *new Memory;
  return m;
}

struct Pinned {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> live;
};
Pinned& pinned() {
  static Pinned& p = *new Pinned;
  return p;
}

}  // namespace

void* allocate(int device, std::size_t bytes) { return memory().allocate(device, bytes); }
bool give_back(void* p) { return memory().give_back(p); }
std::optional<Block> find(const void* p) {
  const auto block = memory().find(p);
  return block ? block : find_mapped(p);
}
bool charge(int device, std::size_t bytes) { return memory().charge(device, bytes); }
void uncharge(int device, std::size_t bytes) { memory().uncharge(device, bytes); }
std::size_t bytes_in_use(int device) { return memory().in_use(device); }
std::size_t most_in_use(int device) { return memory().most_in_use(device); }

void* allocate_host(std::size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, alignment, std::max(bytes, std::size_t{1})) != 0) return nullptr;
  std::memset(p, unset, bytes);
  std::lock_guard lock(pinned().mutex);
  pinned().live[reinterpret_cast<std::uintptr_t>(p)] = {0, static_cast<char*>(p), bytes};
  return p;
}
bool give_back_host(void* p) {
  {
    std::lock_guard lock(pinned().mutex);
    if (pinned().live.erase(reinterpret_cast<std::uintptr_t>(p)) == 0) return false;
  }
  std::free(p);
  return true;
}
std::optional<Block> find_host(const void* p) {
  std::lock_guard lock(pinned().mutex);
  auto at = pinned().live.upper_bound(reinterpret_cast<std::uintptr_t>(p));
  if (at == pinned().live.begin()) return {};
  const Block& b = (--at)->second;
  if (static_cast<const char*>(p) >= b.data + b.bytes) return {};
  return b;
}

}  // namespace emulator
