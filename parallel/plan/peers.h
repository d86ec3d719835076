// Pairs of ranks that exchange something and change with the step, made by rule: as small for 100,000 ranks as for 4.
#pragma once
#include <cstdint>

#include "parallel/plan/plan.h"

namespace trireme {

/// The ranks (coordinates along the axis) to which a rank sends and from which it receives; itself: nobody.
struct RankPair {
  int to, from;
  bool operator==(const RankPair&) const = default;
};
/// By Peer::pairs, for one of `ranks` ranks in a step (counted from 0):
/// "ring": neighbours, in even steps (0, 1), (2, 3), ..., in odd ones (1, 2), ..., (ranks - 1, 0); of an odd number of
/// ranks one has nobody;
/// "exponential": to rank + 2^k, from rank - 2^k, k going through 0, 1, ... below log2(ranks) with the steps (the
/// one-peer exponential graph: Ying et al., arXiv 2110.13363);
/// "matching": pairs drawn at random from Peer::seed and the step; of an odd number one rank has nobody.
/// Without a rule by Peer::offset, round the axis. Throws Error for another rule.
RankPair peers_at(const Peer&, int rank, int ranks, std::int64_t step);

}  // namespace trireme
