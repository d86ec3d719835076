// Grid search: every combination of `levels` values of each parameter, with both ends. Parameters that do not apply are
// not varied.
#pragma once
#include "tools/study/algorithm.h"

namespace trireme {

class GridSearch : public PointSearch {
 public:
  using PointSearch::PointSearch;
  Point next(int number) const override;
  /// The first `most` points; the last parameter varies fastest.
  static std::vector<Point> points(const Space&, std::int64_t most);
};

}  // namespace trireme
