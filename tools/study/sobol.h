// Sobol sequence: points that fill the unit cube more evenly than random points (Sobol 1967). Direction numbers of Joe
// and Kuo (SIAM J. Sci. Comput. 30, 2008), in the order of Gray code (Antonov and Saleev 1979).
#pragma once
#include <cstdint>

#include "tools/study/algorithm.h"

namespace trireme {

class Sobol {
 public:
  static constexpr std::size_t most = 32;  ///< dimensions
  /// Throws Error for more than `most` dimensions.
  explicit Sobol(std::size_t dimensions);
  /// Point `index`, from 0, with coordinates in [0, 1). scramble: seed of Owen's scrambling (in: Monte Carlo and
  /// Quasi-Monte Carlo Methods, 1995), which keeps the evenness; 0: none.
  std::vector<double> at(std::uint32_t index, std::uint64_t scramble = 0) const;

 private:
  std::vector<std::vector<std::uint32_t>> directions_;  // by dimension, highest bit first
};

class SobolSearch : public PointSearch {
 public:
  using PointSearch::PointSearch;
  Point next(int number) const override;
};

}  // namespace trireme
