// ASHA, asynchronous successive halving (Li et al., MLSys 2020, algorithm 2): trials begin with few epochs; whenever a
// worker is free, one of the best 1 / eta of a rung goes on to the next, and if there is none, a new trial begins.
#pragma once
#include "tools/tune/algorithm.h"

namespace trireme {

/// Epochs at the end of each rung: min_epochs times powers of eta, of which the last is `epochs` (the others are as far
/// below it, so that a schedule over `epochs` comes to its end).
std::vector<std::int64_t> asha_rungs(const TuneOptions&);

class Asha : public SearchAlgorithm {
 public:
  using SearchAlgorithm::SearchAlgorithm;
  Suggestion suggest() const override;
};

}  // namespace trireme
