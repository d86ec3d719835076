// TPE, the tree-structured Parzen estimator (Bergstra, Bardenet, Bengio and Kegl, NeurIPS 2011): of the trials so far
// the best make one density, l, the others another, g; of points drawn from l the next is that of the greatest l / g.
#pragma once
#include <span>

#include "tools/tune/algorithm.h"

namespace trireme {

/// A density over [0, 1]: a normal distribution around each place, as wide as the farther of its neighbours is away,
/// and a flat one of the prior's, all cut off at the ends and of equal weight.
class Parzen {
 public:
  explicit Parzen(std::vector<double> places);
  double draw(std::mt19937_64&) const;
  double log_density(double place) const;

 private:
  struct Bell {
    double centre, width, mass;  // mass: of it that lies in [0, 1]
  };
  std::vector<Bell> bells_;
};

class Tpe : public PointSearch {
 public:
  using PointSearch::PointSearch;
  /// The first options.startup trials are random. Trials that are open count among the worse: their neighbourhood is
  /// being looked at.
  Point next(int number) const override;

 private:
  double draw(std::size_t parameter, std::span<const TrialState* const> good, std::span<const TrialState* const> rest,
              std::mt19937_64&) const;
};

}  // namespace trireme
