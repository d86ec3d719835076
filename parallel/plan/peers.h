// Communication partners by rule: fixed graphs, and pairs that change with the step. With a rule a plan for 100,000
// ranks is as small as for 4.
#pragma once
#include <cstdint>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// The partners of a rank, as coordinates along the axis; the rank itself means no partner.
struct RankPair {
  int to,                                            ///< receives from this rank
      from;                                          ///< sends to this rank
  bool operator==(const RankPair&) const = default;  ///< member by member
};
/// The pairs with which a rank exchanges one message each way in a step (counted from 0), by the rule Peer::pairs.
/// Pairs without a partner are omitted; without a rule there are none. The rules: "ring": with both neighbours;
/// "directed_ring": to the next rank, from the one before; "torus": with all four on a grid of rows and columns, the
/// most nearly square one; neighbours on two sides count once; "exponential": to rank + 2^k, from rank - 2^k, k going
/// through 0, 1, ... below log2(ranks) with the steps (the one-peer exponential graph: Ying et al., arXiv 2110.13363);
/// "matching": pairs drawn at random from Peer::seed and the step; with an odd number of ranks, one has no partner;
/// "random_target": to one other rank, drawn at random from Peer::seed and the step, from those that have drawn this
/// one (any number; push-sum: Kempe et al., FOCS 2003), in a time that grows with the ranks; "bipartite",
/// "bipartite_ring": each even rank exchanges with an odd one, drawn in the same way from all odd ranks or from its
/// neighbours; an odd rank exchanges with all ranks that have drawn it. Throws Error for another rule.
std::vector<RankPair> peers_at(const Peer&, int rank, int ranks, std::int64_t step);

}  // namespace trireme
