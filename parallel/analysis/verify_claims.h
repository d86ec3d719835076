// verify_claims(): measures what strategies claim of themselves (parallel/strategies/claims.h), each in a run of its
// own.
#pragma once
#include <string>
#include <vector>

#include "parallel/analysis/verify.h"

namespace trireme {

struct ClaimResult {
  std::string claim;     ///< "gossip: mean preserved: ..."
  std::string measured;  ///< in words, with its size
  bool holds = false;
};
/// Makes a strategy from its text.
using StrategyFromText = std::function<Strategy(const std::string&)>;

/// Each claim is measured with a learning rate of 0.05, without momentum, on batches of as many rows for each worker,
/// in VerifyOptions::steps steps, as equal where it is off by VerifyOptions::tolerance at most, relative. The same on
/// every rank. A collective call. Throws Error where a strategy cannot run so.
std::vector<ClaimResult> verify_claims(const Subject&, Mesh&, const std::vector<ClaimedText>&, const StrategyFromText&,
                                       const VerifyOptions& = {});

}  // namespace trireme
