// Ranks that exchange something, by rule, so that a plan is as small for 100,000 of them as for 4: graphs, and pairs
// that change with the step.
#pragma once
#include <cstdint>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// The ranks (coordinates along the axis) to which a rank sends and from which it receives; itself: nobody.
struct RankPair {
  int to, from;
  bool operator==(const RankPair&) const = default;
};
/// By Peer::pairs, for one of `ranks` ranks in a step (counted from 0), the pairs at which it exchanges one message
/// each way, those with nobody left out:
/// "ring": with both neighbours;
/// "torus": with all four on a grid of rows and columns, the most nearly square one; neighbours on two sides count
/// once;
/// "exponential": to rank + 2^k, from rank - 2^k, k going through 0, 1, ... below log2(ranks) with the steps (the
/// one-peer exponential graph: Ying et al., arXiv 2110.13363);
/// "matching": pairs drawn at random from Peer::seed and the step; of an odd number one rank has nobody;
/// "random_target": to one other rank, drawn at random from Peer::seed and the step, from those that have drawn this
/// one (any number; push-sum: Kempe et al., FOCS 2003), in a time that grows with the ranks;
/// "bipartite", "bipartite_ring": each even rank exchanges with an odd one, drawn in the same way from all of them or
/// from those beside it; an odd rank with those that have drawn it, any number.
/// Without a rule by Peer::offset, round the axis. Throws Error for another rule.
std::vector<RankPair> peers_at(const Peer&, int rank, int ranks, std::int64_t step);

}  // namespace trireme
