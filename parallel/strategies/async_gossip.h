// Asynchronous gossip (AD-PSGD: Lian et al., arXiv 1710.06952): pairs of ranks average their weights without meeting in
// the same step. A rank waits at most for the answer to its previous request.
#pragma once
#include "parallel/strategies/strategy.h"

namespace trireme {

/// The plan with these exchanges along GossipOptions::axis. Throws Error if a worker has several ranks, which would
/// exchange weights at different times, and for a graph that is not bipartite.
Plan gossip_asynchronously(Plan, const GossipOptions&);

}  // namespace trireme
