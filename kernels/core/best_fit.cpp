#include "kernels/core/best_fit.h"

#include <utility>

namespace trireme {

std::optional<std::size_t> BestFit::take(std::size_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit == by_size_.end()) return {};
  const auto [size, at] = *fit;
  if (size > bytes)
    change(free_.find(at), at + bytes, size - bytes);
  else
    take_at(at);
  return at;
}

void BestFit::give(std::size_t at, std::size_t bytes) {
  const auto next = free_.find(at + bytes);
  const std::size_t begin = before(at), end = at + bytes + (next == free_.end() ? 0 : next->second);
  if (begin != at) {
    if (next != free_.end()) erase(next);
    change(free_.find(begin), begin, end - begin);
  } else if (next != free_.end()) {
    change(next, begin, end - begin);
  } else {
    const auto added = free_.emplace(at, bytes).first;
    try {
      by_size_.emplace(bytes, at);
    } catch (...) {
      free_.erase(added);
      throw;
    }
  }
}

std::size_t BestFit::before(std::size_t end) const {
  const auto next = free_.lower_bound(end);
  if (next == free_.begin()) return end;
  const auto last = std::prev(next);
  return last->first + last->second == end ? last->first : end;
}

void BestFit::take_at(std::size_t at) { erase(free_.find(at)); }

void BestFit::change(std::map<std::size_t, std::size_t>::iterator stretch, std::size_t at, std::size_t bytes) {
  auto sized = by_size_.extract({stretch->second, stretch->first});
  sized.value() = {bytes, at};
  by_size_.insert(std::move(sized));
  auto placed = free_.extract(stretch);
  placed.key() = at;
  placed.mapped() = bytes;
  free_.insert(std::move(placed));
}
void BestFit::erase(std::map<std::size_t, std::size_t>::iterator block) {
  by_size_.erase({block->second, block->first});
  free_.erase(block);
}

}  // namespace trireme
