// Where blocks of CUDA graphs lie (kernels/cuda/graph_memory.h), without a device: addresses are numbers.
#include "kernels/cuda/graph_memory.h"

#include <map>
#include <random>

#include "tests/support/catch.h"

namespace test_cuda_graph_memory {

using trireme::gpu::GraphMemory;

TEST_CASE("blocks of graphs overlap none, and every segment comes back once", "[cuda_emulator]") {
  struct Held {
    std::uintptr_t at;
    std::size_t bytes;
    int graph;
  };
  constexpr int graphs = 3;
  std::minstd_rand engine(7);
  GraphMemory memory;
  std::map<std::uintptr_t, std::pair<std::size_t, int>> segments;  // bytes, graph
  std::uintptr_t next = 1 << 20;
  std::vector<Held> held;
  std::vector<GraphMemory::Segment> unused;
  int numbers[graphs];
  for (int& number : numbers) number = memory.add();
  for (int i = 0; i < 4000; ++i) {
    if (held.empty() || engine() % 5 < 3) {
      const int graph = static_cast<int>(engine() % graphs);
      const std::size_t bytes = engine() % 5 == 0 ? engine() % 100000 : engine() % 2000;
      const auto more = [&](std::size_t wanted) {
        segments[next] = {wanted, graph};
        const std::uintptr_t at = next;
        next += (wanted + 255) / 256 * 256;  // side by side, as a driver may lay them
        return reinterpret_cast<void*>(at);
      };
      const auto at = reinterpret_cast<std::uintptr_t>(memory.take(numbers[graph], bytes, more));
      REQUIRE(at % 256 == 0);
      const auto segment = std::prev(segments.upper_bound(at));
      REQUIRE(segment->second.second == graph);
      REQUIRE(at + bytes <= segment->first + segment->second.first);
      for (const Held& h : held) REQUIRE((at + bytes <= h.at || h.at + h.bytes <= at));
      held.push_back({at, bytes, graph});
    } else {
      std::swap(held[engine() % held.size()], held.back());
      REQUIRE(memory.give(reinterpret_cast<void*>(held.back().at), held.back().bytes, unused));
      held.pop_back();
    }
  }
  CHECK(unused.empty());  // all graphs are there
  CHECK(segments.size() < 2500);
  memory.remove(numbers[0], unused);
  for (const Held& h : held) REQUIRE(memory.give(reinterpret_cast<void*>(h.at), h.bytes, unused));
  for (int number : {numbers[1], numbers[2]}) memory.remove(number, unused);
  CHECK(unused.size() == segments.size());
  for (const auto& s : unused) {
    const auto at = segments.find(reinterpret_cast<std::uintptr_t>(s.memory));
    REQUIRE(at != segments.end());
    CHECK(at->second.first == s.bytes);
    segments.erase(at);
  }
  CHECK(!memory.give(reinterpret_cast<void*>(std::uintptr_t{1} << 20), 8, unused));
}

}  // namespace test_cuda_graph_memory
