// Asynchronous gossip: kinds of actions by which pairs of ranks average their weights, nobody waiting for more than an
// answer (Lian et al., AD-PSGD, arXiv 1710.06952).
#pragma once
#include "parallel/strategies/strategy.h"

namespace trireme {

/// Adds them to a plan, along GossipOptions::axis. Throws Error where a worker is several ranks, each of which would
/// meet others at another time, or where the graph has no two sides.
Plan gossip_asynchronously(Plan, const GossipOptions&);

}  // namespace trireme
