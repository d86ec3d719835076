// Free stretches of addresses: the smallest that is long enough is taken, and neighbours join when they come back, so
// that later blocks of other sizes use the memory of earlier ones.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <set>

namespace trireme {

class BestFit {
 public:
  /// Where bytes were taken; none: no stretch is that long.
  std::optional<std::size_t> take(std::size_t bytes);
  /// Asks for memory only where no neighbour is free. Without it: std::bad_alloc, and nothing has changed.
  void give(std::size_t at, std::size_t bytes);
  /// Where the free stretch that ends at `end` begins; `end` itself: there is none.
  std::size_t before(std::size_t end) const;
  /// Takes the free stretch that begins at `at`, whole.
  void take_at(std::size_t at);

 private:
  /// Makes another stretch of one, without asking for memory.
  void change(std::map<std::size_t, std::size_t>::iterator stretch, std::size_t at, std::size_t bytes);
  void erase(std::map<std::size_t, std::size_t>::iterator);

  std::map<std::size_t, std::size_t> free_;  // at -> bytes, no two adjacent
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
};

}  // namespace trireme
