// The CPU's allocator and thread counts.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "kernels/core/best_fit.h"
#include "kernels/core/named_range.h"
#include "kernels/core/runtime.h"
#include "kernels/core/view.h"
#include "tests/support/catch.h"

namespace test_runtime {
namespace {
thread_local int allocations = 0;  // by operator new on this thread
thread_local bool refusing = false;
}  // namespace
}  // namespace test_runtime

void* operator new(std::size_t bytes) {
  ++test_runtime::allocations;
  if (test_runtime::refusing) throw std::bad_alloc();
  if (void* block = std::malloc(std::max<std::size_t>(bytes, 1))) return block;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(std::max<std::size_t>(bytes, 1));
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace test_runtime {

using namespace trireme;

TEST_CASE("the allocator reuses blocks and counts bytes", "[runtime]") {
  Runtime& r = runtime(DeviceKind::cpu);
  std::size_t before = r.in_use();
  r.reset_peak();
  for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{5000},
                            std::size_t{1} << 20, std::size_t{3000000}, (std::size_t{64} << 20) + 1}) {
    void* block = r.allocate(bytes, cpu());
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    std::memset(block, 1, bytes);
    CHECK(r.in_use() == before + bytes);
    r.release(block, bytes, cpu());
    void* again = r.allocate(bytes, cpu(1));
    CHECK(again == block);
    r.release(again, bytes, cpu(1));
  }
  CHECK(r.in_use() == before);
  CHECK(r.peak() == before + (std::size_t{64} << 20) + 1);
  CHECK_THROWS_AS(r.allocate(std::size_t{1} << 60, cpu()), Error);
}

TEST_CASE("an allocation in a layer's range builds no text", "[runtime]") {
  NamedRange phase("backward of a step, a name too long to lie in a string itself"),
      layer("layer4.1.conv2, a name too long to lie in a string itself");
  Runtime& r = runtime(DeviceKind::cpu);
  r.release(r.allocate(1000, cpu()), 1000, cpu());
  const int before = allocations;
  void* block = r.allocate(1000, cpu());
  CHECK(allocations == before);
  r.release(block, 1000, cpu());
}

TEST_CASE("check() calls what it can call of its arguments only for a message", "[runtime]") {
  int calls = 0;
  const auto costly = [&calls] { return std::to_string(++calls); };
  check(true, "op", "{} of {}", costly, 3);
  CHECK(calls == 0);
  CHECK_ERROR(check(false, "op", "{} of {}", costly, 3), usage, "op", 1, 3);
}

TEST_CASE("an allocation that fails has a kind and a remedy", "[runtime]") {
  try {
    throw std::bad_alloc();
  } catch (...) {
    CHECK(current_kind() == ErrorKind::out_of_memory);
    CHECK(current_message().find("smaller batch") != std::string::npos);
  }
  try {
    fail(ErrorKind::data, "op", "text");
  } catch (...) {
    CHECK(current_kind() == ErrorKind::data);
    CHECK(current_message() == "op: text");
  }
  try {  // what() would end at a zero byte, such as one in a tensor's name
    fail(ErrorKind::data, "op", "{} is read as {}", std::string("a\0b", 3), 7);
  } catch (...) { CHECK(current_message() == "op: a?b is read as 7"); }
}

TEST_CASE("big blocks join when they are released and serve other sizes", "[runtime]") {
  Runtime& r = runtime(DeviceKind::cpu);
  constexpr std::size_t unit = std::size_t{1} << 20;
  char* three = static_cast<char*>(r.allocate(3 * unit, cpu()));
  r.release(three, 3 * unit, cpu());
  char* parts[3];
  for (char*& part : parts) part = static_cast<char*>(r.allocate(unit, cpu()));
  for (int i = 0; i < 3; ++i) CHECK(parts[i] == three + static_cast<std::size_t>(i) * unit);
  for (int i : {0, 2, 1}) r.release(parts[i], unit, cpu());
  CHECK(r.allocate(3 * unit - 5000, cpu()) == three);
  r.release(three, 3 * unit - 5000, cpu());
}

TEST_CASE("big blocks are released, and join, when there is no memory to note them", "[runtime]") {
  Runtime& r = runtime(DeviceKind::cpu);
  constexpr std::size_t unit = std::size_t{1} << 20;
  const std::size_t before = r.in_use();
  char* blocks[5];
  for (char*& block : blocks) block = static_cast<char*>(r.allocate(unit, cpu()));
  refusing = true;
  for (int i : {1, 3}) r.release(blocks[i], unit, cpu());  // no neighbour is free: they are given up
  for (int i : {0, 4}) r.release(blocks[i], unit, cpu());
  refusing = false;
  r.release(blocks[2], unit, cpu());
  CHECK(r.in_use() == before);
  void* again = r.allocate(3 * unit, cpu());
  std::memset(again, 1, 3 * unit);
  r.release(again, 3 * unit, cpu());
}

TEST_CASE("parts of a block keep what was written, whatever is discarded, restored and zeroed beside it", "[runtime]") {
  Runtime& r = runtime(DeviceKind::cpu);
  constexpr std::size_t size = std::size_t{24} << 20, unit = 1024;
  constexpr int unknown = -1;
  std::mt19937 engine(7);
  const auto pick = [&engine](std::size_t below) { return static_cast<std::size_t>(engine() % below); };
  auto* block = static_cast<unsigned char*>(r.allocate_discardable(size, cpu()));
  std::vector<int> expected(size / unit, unknown);  // the byte that fills each unit
  const auto set = [&](std::size_t begin, std::size_t end, int value) {
    std::fill(expected.begin() + static_cast<std::ptrdiff_t>(begin),
              expected.begin() + static_cast<std::ptrdiff_t>(end), value);
  };
  for (int i = 0; i < 400; ++i) {
    std::size_t begin = pick(size / unit), end = begin + 1 + pick(size / unit - begin);
    if (pick(2) == 0) end = std::min(end, begin + 4096);  // 4 MiB
    unsigned char* const at = block + begin * unit;
    const std::size_t bytes = (end - begin) * unit;
    switch (pick(8)) {
      case 0:
      case 1:
      case 2:
        r.discard(at, bytes, cpu());
        set(begin, end, unknown);
        break;
      case 3:
      case 4: r.restore(at, bytes, cpu()); break;
      case 5:
        r.zero(at, bytes, cpu());
        set(begin, end, 0);
        break;
      case 6:
        r.release(block, size, cpu());
        block = static_cast<unsigned char*>(r.allocate_discardable(size, cpu()));
        r.zero(block, size, cpu());
        set(0, size / unit, 0);
        break;
      default: std::memset(at, i % 250 + 1, bytes); set(begin, end, i % 250 + 1);
    }
    std::size_t wrong = 0;
    for (std::size_t u = 0; u < size / unit; ++u)
      if (expected[u] != unknown) wrong += block[u * unit] != expected[u] || block[u * unit + unit - 1] != expected[u];
    REQUIRE(wrong == 0);
  }
  std::memset(block, 1, size);
  REQUIRE(r.resident(block, size, cpu()) == size);
  r.discard(block, size, cpu());
  CHECK(r.resident(block, size, cpu()) == 0);
  r.release(block, size, cpu());
}

TEST_CASE("free stretches are those of a list that is kept by hand", "[runtime]") {
  constexpr std::size_t end = 60;
  std::mt19937 engine(3);
  const auto pick = [&engine](std::size_t below) { return static_cast<std::size_t>(engine() % below); };
  BestFit free;
  std::vector<bool> is_free(end, true);
  std::vector<std::pair<std::size_t, std::size_t>> taken;
  free.give(0, end);
  for (int i = 0; i < 3000; ++i) {
    if (const std::size_t bytes = 1 + pick(9); pick(2) == 0) {
      std::size_t best = end + 1;  // the shortest stretch that is long enough, the first of its length
      std::size_t best_at = end;
      for (std::size_t at = 0; at < end;) {
        std::size_t length = 0;
        while (at + length < end && is_free[at + length]) ++length;
        if (length >= bytes && length < best) {
          best = length;
          best_at = at;
        }
        at += length + 1;
      }
      const auto at = free.take(bytes);
      REQUIRE(at.value_or(end) == best_at);
      if (!at) continue;
      for (std::size_t k = 0; k < bytes; ++k) is_free[*at + k] = false;
      taken.emplace_back(*at, bytes);
    } else if (!taken.empty()) {
      std::swap(taken[pick(taken.size())], taken.back());
      const auto [at, bytes] = taken.back();
      refusing = pick(2) == 0;
      try {
        free.give(at, bytes);
        for (std::size_t k = 0; k < bytes; ++k) is_free[at + k] = true;
        taken.pop_back();
      } catch (const std::bad_alloc&) {}  // nothing has changed: it stays taken
      refusing = false;
    }
  }
}

TEST_CASE("a copy within one block moves what overlaps", "[runtime]") {
  Runtime& r = runtime(DeviceKind::cpu);
  constexpr std::size_t count = 300000;
  auto* block = static_cast<unsigned char*>(r.allocate(count, cpu()));
  for (const std::ptrdiff_t shift : {1, 64, 4096, 100000, -1, -64, -4096, -100000, 0}) {
    for (std::size_t i = 0; i < count; ++i) block[i] = static_cast<unsigned char>(i % 251);
    const auto room = static_cast<std::size_t>(std::abs(shift)), from = shift > 0 ? 0 : room, to = shift > 0 ? room : 0;
    r.copy(block + to, cpu(), block + from, cpu(), count - room);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count - room; ++i) wrong += block[to + i] != (from + i) % 251;
    CHECK(wrong == 0);
  }
  r.release(block, count, cpu());
}

TEST_CASE("the allocator serves many threads", "[runtime]") {
  Runtime& r = runtime(DeviceKind::cpu);
  std::size_t before = r.in_use();
  std::vector<std::thread> team;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    team.emplace_back([&, t] {
      for (std::size_t i = 0; i < 2000; ++i) {
        std::size_t bytes = i * 37 % 9000 + 1;
        auto* block = static_cast<unsigned char*>(r.allocate(bytes, cpu()));
        std::memset(block, t, bytes);
        for (std::size_t k = 0; k < bytes; k += 97) wrong += block[k] != t;
        r.release(block, bytes, cpu());
      }
    });
  for (auto& t : team) t.join();
  CHECK(wrong == 0);
  CHECK(r.in_use() == before);
}

TEST_CASE("threads() is the calling thread's own", "[runtime]") {
  int before = threads();
  set_threads(3);
  std::thread([] { set_threads(1); }).join();
  CHECK(threads() == 3);
  set_threads(before);
  CHECK(cores() >= 1);
  CHECK_THROWS_AS(set_threads(0), Error);
}

}  // namespace test_runtime
