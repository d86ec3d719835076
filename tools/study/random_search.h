// Random search (Bergstra and Bengio, JMLR 2012): points are uniform in the unit cube. A point depends only on the seed
// and the trial's number.
#pragma once
#include "tools/study/algorithm.h"

namespace trireme {

class RandomSearch : public PointSearch {
 public:
  using PointSearch::PointSearch;
  Point next(int number) const override { return random_point(number); }
};

}  // namespace trireme
