// Asynchronous gossip: kinds of actions by which pairs of ranks average their weights. A rank waits for at most one
// answer (Lian et al., AD-PSGD, arXiv 1710.06952).
#pragma once
#include "parallel/strategies/strategy.h"

namespace trireme {

/// Adds the exchanges to a plan, along GossipOptions::axis. Throws Error if a worker has several ranks, which would
/// exchange weights at different times, and for a graph that is not bipartite.
Plan gossip_asynchronously(Plan, const GossipOptions&);

}  // namespace trireme
