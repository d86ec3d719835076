// How far numbers are from those that they should be, relative to their size.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace trireme::test {

/// The largest |a - b| of each tensor over the largest |b| of it (over nothing, where b is 0): the most of them. ends:
/// where tensors end that lie one behind the other; empty: a and b are one.
inline double distance(const std::vector<double>& a, const std::vector<double>& b,
                       const std::vector<std::size_t>& ends = {}) {
  if (a.size() != b.size() || (!ends.empty() && ends.back() != a.size())) return 1e300;
  double most = 0;
  for (std::size_t t = 0, i = 0; t < std::max<std::size_t>(ends.size(), 1); ++t) {
    double off = 0, largest = 0;
    for (const std::size_t end = ends.empty() ? a.size() : ends[t]; i < end; ++i) {
      const double d = std::abs(a[i] - b[i]);
      off = d <= off ? off : d;  // NaN stays
      largest = std::max(largest, std::abs(b[i]));
    }
    const double relative = off == 0 || largest == 0 ? off : off / largest;
    most = relative <= most ? most : relative;
  }
  return most;
}

}  // namespace trireme::test
