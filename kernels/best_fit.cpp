#include "kernels/best_fit.h"

#include <utility>

namespace trireme {

std::optional<std::size_t> BestFit::take(std::size_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit == by_size_.end()) return {};
  const auto [size, at] = *fit;
  take_at(at);
  if (size > bytes) insert(at + bytes, size - bytes);
  return at;
}

void BestFit::give(std::size_t at, std::size_t bytes) {
  if (const auto next = free_.find(at + bytes); next != free_.end()) {
    bytes += next->second;
    erase(next);
  }
  const std::size_t begin = before(at);
  if (begin != at) take_at(begin);
  insert(begin, at + bytes - begin);
}

std::size_t BestFit::before(std::size_t end) const {
  const auto next = free_.lower_bound(end);
  if (next == free_.begin()) return end;
  const auto last = std::prev(next);
  return last->first + last->second == end ? last->first : end;
}

void BestFit::take_at(std::size_t at) { erase(free_.find(at)); }

void BestFit::insert(std::size_t at, std::size_t bytes) {
  free_.emplace(at, bytes);
  by_size_.emplace(bytes, at);
}
void BestFit::erase(std::map<std::size_t, std::size_t>::iterator block) {
  by_size_.erase({block->second, block->first});
  free_.erase(block);
}

}  // namespace trireme
