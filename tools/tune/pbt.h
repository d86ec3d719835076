// PBT, population-based training (Jaderberg et al. 2017, arXiv:1711.09846): every min_epochs a trial that is among the
// worst of those that have come as far ends, and another takes its place, with the weights of one of the best
// (exploit: truncation selection) and that one's point perturbed (explore). Asynchronous: none waits for others.
#pragma once
#include "tools/tune/algorithm.h"

namespace trireme {

class Pbt : public SearchAlgorithm {
 public:
  using SearchAlgorithm::SearchAlgorithm;
  Suggestion suggest() const override;
  /// A point beside another: of each parameter that applies numbers become 0.8 or 1.2 times as much (whole ones change
  /// by one at least), and every fourth is drawn anew; choices stay, or are drawn anew as often.
  Point explore(const Point&, int number) const;

 private:
  Suggestion follow(const TrialState&) const;
};

}  // namespace trireme
