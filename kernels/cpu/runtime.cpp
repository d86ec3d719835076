// Memory of the CPU: a caching allocator. Small blocks use free lists by size class, large ones an arena. Both stay
// mapped, so a training step in its steady state makes no system call and has no page fault.
#include "kernels/core/runtime.h"

#include <omp.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/core/named_range.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/page_pool.h"
#include "kernels/cpu/parallel.h"

// Present only under AddressSanitizer, which then detects use after release and overruns inside cached blocks.
extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void*, std::size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, std::size_t);
}

namespace trireme {
namespace {

constexpr std::size_t line = 64, big = std::size_t{256} << 10;
constexpr std::uintptr_t page = 4096;

/// Classes: multiples of 64 bytes up to 512, then eight per power of two: at most an eighth is lost.
constexpr int class_of(std::size_t bytes) {
  std::size_t lines = std::max<std::size_t>(1, (bytes + line - 1) / line);
  if (lines <= 8) return static_cast<int>(lines - 1);
  int shift = static_cast<int>(std::bit_width(lines - 1)) - 4;
  return 8 * shift + static_cast<int>((lines - 1) >> shift);
}
std::size_t class_bytes(int c) {
  if (c < 8) return line * static_cast<std::size_t>(c + 1);
  int shift = c / 8 - 1;
  return line * ((static_cast<std::size_t>(c % 8 + 8) + 1) << shift);
}

class CpuRuntime final : public Runtime {
 public:
  void* allocate(std::size_t bytes, Device) override { return allocate(bytes, arena_); }
  void* allocate_discardable(std::size_t bytes, Device) override {
    void* block = allocate(bytes, sparse_);
    if (sparse_.owns(block)) ++sparse_blocks_;
    return block;
  }

  void* allocate(std::size_t bytes, Arena& large) {
    check(bytes <= max_bytes, ErrorKind::out_of_memory, "allocate", "{} bytes asked for: no machine has that much",
          bytes);
    void* block = bytes >= big ? large.allocate(bytes) : small(class_of(bytes));
    check(block != nullptr, ErrorKind::out_of_memory, "allocate",
          "out of memory{}: {} bytes asked for, {} in use; try a smaller batch", NamedRange::place, bytes, in_use());
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(block, bytes);
    std::size_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    for (std::size_t top = peak(); now > top && !peak_.compare_exchange_weak(top, now, std::memory_order_relaxed);) {}
    return block;
  }

  void release(void* block, std::size_t bytes, Device) noexcept override {
    if (block == nullptr) return;
    const int c = class_of(std::min(bytes, big));
    if (__asan_poison_memory_region != nullptr)
      __asan_poison_memory_region(block, bytes >= big ? bytes : class_bytes(c));
    in_use_.fetch_sub(bytes, std::memory_order_relaxed);
    if (bytes >= big && sparse_.owns(block)) {
      char* const begin = static_cast<char*>(block);
      pages_.zero(begin, begin + (bytes + page - 1) / page * page);
      sparse_.release(block, bytes);
      if (--sparse_blocks_ == 0) pages_.clear();
      return;
    }
    if (bytes >= big) return arena_.release(block, bytes);
    Bin& bin = bins_[static_cast<std::size_t>(c)];
    std::lock_guard lock(bin.mutex);
    try {
      bin.free.push_back(block);
    } catch (const std::bad_alloc&) {
      if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(block, class_bytes(c));
      std::free(block);
    }
  }

  void discard(void* from, std::size_t bytes, Device) noexcept override {
    const Pages pages = fill_edges(from, bytes);
    if (sparse_.owns(from)) return pages_.discard(pages.begin, pages.end);
    give_back(pages);
  }

  void restore(void* from, std::size_t bytes, Device) override {
    if (sparse_.owns(from)) pages_.restore(static_cast<char*>(from), static_cast<char*>(from) + bytes);
  }

  void zero(void* from, std::size_t bytes, Device) noexcept override {
    const Pages pages = fill_edges(from, bytes);
    if (sparse_.owns(from)) return pages_.zero(pages.begin, pages.end);
    give_back(pages);
  }

  std::size_t resident(const void* from, std::size_t bytes, Device) const override {
    const auto first = reinterpret_cast<std::uintptr_t>(from), last = first + bytes;
    const std::uintptr_t begin = first / page * page;
    std::vector<unsigned char> there((last - begin + page - 1) / page);
    if (mincore(reinterpret_cast<void*>(begin), last - begin, there.data()) != 0) return bytes;
    std::size_t sum = 0;
    for (std::size_t i = 0; i < there.size(); ++i)
      if (there[i] & 1) sum += std::min(begin + (i + 1) * page, last) - std::max(begin + i * page, first);
    return sum;
  }

  void copy(void* to, Device, const void* from, Device, std::size_t bytes) override {
    const auto source = reinterpret_cast<std::uintptr_t>(from), target = reinterpret_cast<std::uintptr_t>(to);
    if (source < target + bytes && target < source + bytes) {  // they overlap: one thread, in the order that this needs
      std::memmove(to, from, bytes);
      return;
    }
    parallel_for(static_cast<Index>((bytes + line - 1) / line), 4, [&](Index begin, Index end) {
      std::size_t at = static_cast<std::size_t>(begin) * line;
      std::size_t n = std::min(bytes, static_cast<std::size_t>(end) * line) - at;
      std::memcpy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, n);
    });
  }

  void synchronize(Device) override {}
  std::size_t in_use() const override { return in_use_.load(std::memory_order_relaxed); }
  std::size_t peak() const override { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() override { peak_.store(in_use(), std::memory_order_relaxed); }

 private:
  static constexpr std::size_t max_bytes = std::size_t{1} << 46;
  struct Bin {
    std::mutex mutex;
    std::vector<void*> free;  // last in, first out: the block most likely still in cache
  };

  void* take(int c) {
    Bin& bin = bins_[static_cast<std::size_t>(c)];
    std::lock_guard lock(bin.mutex);
    if (bin.free.empty()) return nullptr;
    void* block = bin.free.back();
    bin.free.pop_back();
    return block;
  }

  void* small(int c) {
    void* block = take(c);
    if (block == nullptr && posix_memalign(&block, line, class_bytes(c)) != 0) return nullptr;
    return block;
  }

  static constexpr auto bins = static_cast<std::size_t>(class_of(big)) + 1;
  std::array<Bin, bins> bins_;
  struct Pages {
    char *begin, *end;
  };
  /// The whole pages of part of a block. Fills the rest of it with zeros.
  static Pages fill_edges(void* from, std::size_t bytes) noexcept {
    char* const block = static_cast<char*>(from);
    const auto first = reinterpret_cast<std::uintptr_t>(from), last = first + bytes;
    const auto begin = std::min((first + page - 1) / page * page, last), end = std::max(last / page * page, begin);
    std::memset(block, 0, begin - first);
    std::memset(block + (end - first), 0, last - end);
    return {block + (begin - first), block + (end - first)};
  }
  static void give_back(const Pages& pages) noexcept {
    if (pages.begin < pages.end)
      (void)madvise(pages.begin, static_cast<std::size_t>(pages.end - pages.begin), MADV_DONTNEED);
  }

  Arena arena_, sparse_{64};  // sparse_: of discardable blocks
  PagePool pages_{sparse_};
  std::atomic<Index> sparse_blocks_ = 0;
  std::atomic<std::size_t> in_use_{0}, peak_{0};
};

// Never destroyed: tensors with static storage may release their blocks after main.
CpuRuntime& cpu_runtime() {
  static CpuRuntime& r = *new CpuRuntime;
  return r;
}
const bool registered = set_runtime(DeviceKind::cpu, &cpu_runtime());

/// Places of a thread's teams, by bind_threads().
struct Binding {
  int number = 0;  // of this binding in this process, from 1; 0: none
  std::vector<cpu_set_t> places;
};
thread_local Binding binding;
thread_local std::pair<int, int> bound_to;  // the binding that a thread of a team follows, and its number in the team

/// Binds this thread of a team. OpenMP may replace the threads of a team at any time, so each looks in each loop.
void follow(const Binding& leader, int me) {
  if (me == 0 || bound_to == std::pair(leader.number, me)) return;
  const cpu_set_t& place = leader.places[static_cast<std::size_t>(me) % leader.places.size()];
  (void)sched_setaffinity(0, sizeof place, &place);  // refused: costs speed only
  bound_to = {leader.number, me};
}

}  // namespace

int cores() {
  static const int count = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return std::max(1, omp_get_num_procs());
  }();
  return count;
}
void bind_threads(const std::vector<std::vector<int>>& places) {
  static std::atomic<int> bindings = 0;
  (void)cores();
  Binding made;
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const std::vector<int>& place : places) {
    cpu_set_t& set = made.places.emplace_back();
    CPU_ZERO(&set);
    for (const int cpu : place) CPU_SET(static_cast<unsigned>(cpu), &set);
    CPU_OR(&all, &all, &set);
    check(CPU_COUNT(&set) > 0, "bind_threads", "place {} has no CPU", made.places.size() - 1);
  }
  check(sched_setaffinity(0, sizeof all, &all) == 0, "bind_threads", "the system refuses to bind a thread ({})",
        [&] { return std::strerror(errno); });
  made.number = ++bindings;
  binding = std::move(made);
}
// OpenMP gives a team fewer threads than requested inside a parallel region, under OMP_THREAD_LIMIT and under
// OMP_DYNAMIC. oneDNN uses OpenMP's number, and its threads wait for one another, so the number must be right.
int threads() {
  const bool alone = omp_in_parallel() || omp_get_max_active_levels() < 1;
  const int asked = omp_get_max_threads(), given = alone ? 1 : std::min(asked, omp_get_thread_limit());
  if (given < asked) omp_set_num_threads(given);
  if (omp_get_dynamic()) omp_set_dynamic(0);
  return given;
}
void set_threads(int count) {
  check(count >= 1, "set_threads", "got {} threads, expected at least 1", count);
  omp_set_num_threads(count);
}

void detail::run_team(int team, Index n, void (*call)(const void*, Index, Index, int), const void* f) {
  std::exception_ptr error;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  const Binding& places = binding;
  // All threads() take part, also those without a chunk: GCC's OpenMP ends the threads that a team leaves out, and
  // starts others for the next larger team.
#pragma omp parallel num_threads(threads())
  {
    const Index count = std::min(team, omp_get_num_threads()), me = omp_get_thread_num();
    const Index begin = n * std::min(me, count) / count, end = n * std::min(me + 1, count) / count;
    if (places.number > 0) follow(places, static_cast<int>(me));
    try {
      if (begin < end) call(f, begin, end, static_cast<int>(me));
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace trireme
