// The code points that are letters and numbers (general categories L and N); unicode_ranges.py generates the .cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trireme::detail {

/// A range of code points, both ends included.
struct CodeRange {
  std::uint32_t first, last;
};
extern const CodeRange letter_ranges[], number_ranges[];  // in order
extern const std::size_t letter_ranges_count, number_ranges_count;

}  // namespace trireme::detail
