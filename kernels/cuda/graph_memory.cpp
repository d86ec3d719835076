#include "kernels/cuda/graph_memory.h"

namespace trireme::gpu {
namespace {

constexpr std::size_t alignment = 256;
/// Padded by one unit, so that segments are not adjacent: a copy must not span two.
constexpr std::size_t rounded(std::size_t bytes) { return (bytes + alignment) / alignment * alignment; }

}  // namespace

int GraphMemory::add() {
  std::lock_guard lock(mutex_);
  free_.emplace(next_, BestFit());
  return next_++;
}

std::map<std::uintptr_t, GraphMemory::Place>::iterator GraphMemory::place_of(std::uintptr_t at) {
  auto next = segments_.upper_bound(at);
  if (next == segments_.begin()) return segments_.end();
  const auto place = std::prev(next);
  return at < place->first + place->second.bytes ? place : segments_.end();
}

void* GraphMemory::take(int graph, std::size_t bytes, const std::function<void*(std::size_t)>& more) {
  bytes = rounded(bytes);
  std::lock_guard lock(mutex_);
  std::uintptr_t at = 0;
  if (const auto found = free_.at(graph).take(bytes)) {
    at = *found;
  } else {
    at = reinterpret_cast<std::uintptr_t>(more(bytes + alignment));
    segments_[at] = {bytes + alignment, graph, 0};
    ++count_;
  }
  ++place_of(at)->second.blocks;
  return reinterpret_cast<void*>(at);
}

bool GraphMemory::give(void* block, std::size_t bytes, std::vector<Segment>& unused) {
  if (count_ == 0) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(block);
  std::lock_guard lock(mutex_);
  const auto place = place_of(at);
  if (place == segments_.end()) return false;
  --place->second.blocks;
  if (const auto graph = free_.find(place->second.graph); graph != free_.end()) {
    graph->second.give(at, rounded(bytes));
  } else if (place->second.blocks == 0) {
    unused.push_back({reinterpret_cast<void*>(place->first), place->second.bytes});
    segments_.erase(place);
    --count_;
  }
  return true;
}

void GraphMemory::remove(int graph, std::vector<Segment>& unused) {
  std::lock_guard lock(mutex_);
  free_.erase(graph);
  for (auto s = segments_.begin(); s != segments_.end();) {
    if (s->second.graph != graph || s->second.blocks > 0) {
      ++s;
      continue;
    }
    unused.push_back({reinterpret_cast<void*>(s->first), s->second.bytes});
    s = segments_.erase(s);
    --count_;
  }
}

}  // namespace trireme::gpu
