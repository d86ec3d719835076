// PBT, population-based training (Jaderberg et al. 2017, arXiv:1711.09846). Every min_epochs a trial among the worst at
// that epoch is replaced. The new trial has the weights of one of the best (exploit: truncation selection) and its
// perturbed point (explore). Asynchronous: trials do not wait for each other.
#pragma once
#include "tools/study/algorithm.h"

namespace trireme {

class Pbt : public SearchAlgorithm {
 public:
  using SearchAlgorithm::SearchAlgorithm;
  Suggestion suggest() const override;
  /// A perturbed point. A number is multiplied by 0.8 or 1.2 (whole numbers change by at least one), or with
  /// probability 1/4 drawn again. A choice is kept, or drawn again with the same probability.
  Point explore(const Point&, int number) const;

 private:
  Suggestion follow(const TrialState&) const;
};

}  // namespace trireme
