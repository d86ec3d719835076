// ASHA, asynchronous successive halving (Li et al., MLSys 2020, algorithm 2): trials start with few epochs. A free
// worker continues one of the best 1 / eta of a rung to the next rung. If there is none, it starts a new trial.
#pragma once
#include "tools/study/algorithm.h"

namespace trireme {

/// Epochs at the end of each rung. The last rung is `epochs`, so that a learning-rate schedule over `epochs` ends. Each
/// rung below has a factor of eta fewer epochs, at least min_epochs.
std::vector<std::int64_t> asha_rungs(const TuneOptions&);

class Asha : public SearchAlgorithm {
 public:
  using SearchAlgorithm::SearchAlgorithm;
  Suggestion suggest() const override;
};

}  // namespace trireme
