// verify_claims(): measures the claims of strategies (parallel/strategies/claims.h), each in a separate run.
#pragma once
#include <string>
#include <vector>

#include "parallel/analysis/verify.h"

namespace trireme {

struct ClaimResult {
  std::string claim;     ///< "gossip: mean preserved: ..."
  std::string measured;  ///< description with the measured size
  bool holds = false;
};
/// Makes a strategy from its text.
using StrategyFromText = std::function<Strategy(const std::string&)>;

/// Measures each claim with learning rate 0.05, without momentum, on batches with equal rows for each worker, over
/// VerifyOptions::steps steps. A claim holds if it is off by at most VerifyOptions::tolerance, relative. Returns the
/// same on every rank. A collective call. Throws Error if a strategy cannot run this way.
std::vector<ClaimResult> verify_claims(const Subject&, Mesh&, const std::vector<ClaimedText>&, const StrategyFromText&,
                                       const VerifyOptions& = {});

}  // namespace trireme
