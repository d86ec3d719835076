// Random search (Bergstra and Bengio, JMLR 2012): each trial's point is drawn uniformly from the unit cube, a function
// of the seed and the trial's number alone.
#pragma once
#include "tools/tune/algorithm.h"

namespace trireme {

class RandomSearch : public PointSearch {
 public:
  using PointSearch::PointSearch;
  Point next(int number) const override { return random_point(number); }
};

}  // namespace trireme
