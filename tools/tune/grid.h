// Grid search: every combination of `levels` values of each parameter, ends included; parameters that do not apply make
// no combinations.
#pragma once
#include "tools/tune/algorithm.h"

namespace trireme {

class GridSearch : public PointSearch {
 public:
  using PointSearch::PointSearch;
  Point next(int number) const override;
  /// The first `most` points, the last parameter varying fastest.
  static std::vector<Point> points(const Space&, std::int64_t most);
};

}  // namespace trireme
