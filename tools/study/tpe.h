// TPE, the tree-structured Parzen estimator (Bergstra, Bardenet, Bengio and Kegl, NeurIPS 2011). The best trials form a
// density l, the others a density g. The next point is the one with the greatest l / g among points drawn from l.
#pragma once
#include <span>

#include "tools/study/algorithm.h"

namespace trireme {

/// A density over [0, 1] with equal weights: a normal distribution around each coordinate, with the distance to its
/// farther neighbour as width, and a flat prior. All are truncated to [0, 1].
class Parzen {
 public:
  explicit Parzen(std::vector<double> places);
  double draw(std::mt19937_64&) const;
  double log_density(double place) const;

 private:
  struct Bell {
    double centre, width, mass;  // mass: the part in [0, 1]
  };
  std::vector<Bell> bells_;
};

class Tpe : public PointSearch {
 public:
  using PointSearch::PointSearch;
  /// The first options.startup trials are random. Running trials count among the worse ones, because their
  /// neighbourhood is being explored.
  Point next(int number) const override;

 private:
  double draw(std::size_t parameter, std::span<const TrialState* const> good, std::span<const TrialState* const> rest,
              std::mt19937_64&) const;
};

}  // namespace trireme
