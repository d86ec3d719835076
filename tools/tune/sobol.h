// Sobol's sequence: points that fill the unit cube more evenly than random ones (Sobol 1967), with the direction
// numbers of Joe and Kuo (SIAM J. Sci. Comput. 30, 2008), in Gray code's order (Antonov and Saleev 1979).
#pragma once
#include <cstdint>

#include "tools/tune/algorithm.h"

namespace trireme {

class Sobol {
 public:
  static constexpr std::size_t most = 32;  ///< dimensions
  /// Throws Error for more.
  explicit Sobol(std::size_t dimensions);
  /// Point `index`, from 0, each coordinate in [0, 1). Scrambled by a seed other than 0 (Owen, in: Monte Carlo and
  /// Quasi-Monte Carlo Methods, 1995: each bit is flipped by those above it), which keeps how evenly they lie.
  std::vector<double> at(std::uint32_t index, std::uint64_t scramble = 0) const;

 private:
  std::vector<std::vector<std::uint32_t>> directions_;  // of each dimension, the highest bit's first
};

class SobolSearch : public PointSearch {
 public:
  using PointSearch::PointSearch;
  Point next(int number) const override;
};

}  // namespace trireme
