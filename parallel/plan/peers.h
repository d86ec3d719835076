// Communication partners by rule: fixed graphs, and pairs that change with the step. A rule has the same size for any
// number of ranks, so a plan for 100,000 ranks is as small as a plan for 4.
#pragma once
#include <cstdint>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// The partners of a rank in one exchange: coordinates along the axis. The rank's own coordinate means no partner.
struct RankPair {
  int to,                                            ///< the rank that receives from this rank
      from;                                          ///< the rank that sends to this rank
  bool operator==(const RankPair&) const = default;  ///< member by member
};
/// The exchanges of a rank in a step, by the rule Peer::pairs. rank: coordinate along the axis, of `ranks` coordinates.
/// step: counted from 0. Exchanges without a partner are omitted; an empty rule has none. Throws Error for another
/// rule. The rules:
/// - "ring": with both neighbours.
/// - "directed_ring": to the next rank, from the previous one.
/// - "torus": with all four neighbours on a grid of rows and columns, as near to square as possible. A neighbour on two
///   sides counts once.
/// - "exponential": to rank + 2^k, from rank - 2^k, where k changes with the step: 0, 1, ... below log2(ranks), then 0
///   again (the one-peer exponential graph: Ying et al., arXiv 2110.13363).
/// - "matching": with one rank; pairs are drawn at random from Peer::seed and the step. Of an odd number of ranks, one
///   has no partner.
/// - "random_target": to one other rank, drawn at random from Peer::seed and the step; from all ranks that have drawn
///   this one, any number of them (push-sum: Kempe et al., FOCS 2003). Takes time proportional to `ranks`.
/// - "bipartite": each even rank draws an odd one in the same way and exchanges with it; an odd rank exchanges with all
///   even ranks that have drawn it. "bipartite_ring": the even rank draws one of its two neighbours.
std::vector<RankPair> peers_at(const Peer&, int rank, int ranks, std::int64_t step);

}  // namespace trireme
