// BestFit: a free list of address ranges. take() chooses the smallest range that is long enough. Adjacent free ranges
// are merged, so that later blocks of other sizes can use the memory of earlier ones. Addresses are offsets in bytes.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <set>

namespace trireme {

class BestFit {
 public:
  /// Takes `bytes` bytes. Returns their offset, or none if no free range is long enough.
  std::optional<std::size_t> take(std::size_t bytes);
  /// Frees [at, at + bytes). Allocates memory only if no adjacent range is free. Throws std::bad_alloc if that fails;
  /// the free list is then unchanged.
  void give(std::size_t at, std::size_t bytes);
  /// The begin of the free range that ends at `end`, or `end` if there is none.
  std::size_t before(std::size_t end) const;
  /// Takes the whole free range that begins at `at`.
  void take_at(std::size_t at);

 private:
  /// Gives a free range another offset and length, without allocating memory.
  void change(std::map<std::size_t, std::size_t>::iterator stretch, std::size_t at, std::size_t bytes);
  void erase(std::map<std::size_t, std::size_t>::iterator);

  std::map<std::size_t, std::size_t> free_;  // at -> bytes, no two adjacent
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
};

}  // namespace trireme
