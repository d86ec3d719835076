#include "parallel/comm/collectives/collectives.h"

namespace trireme::collectives {

Rounds to_root(int rank, const Blocks& blocks, bool reduce) {
  const int p = ranks(blocks);
  // A rank's children differ from it in one bit below its lowest set bit. A rank has its own block and its
  // descendants'.
  const auto subtree = [&](int top, int bit) {
    return reduce ? Slice{0, blocks.back()}
                  : Slice{block(blocks, top).begin, block(blocks, std::min(top + bit, p) - 1).end};
  };
  Rounds rounds;
  for (int bit = 1; bit < p; bit *= 2) {
    if (rank & bit) {
      rounds.push_back({.to = rank - bit, .out = subtree(rank, bit)});
      break;
    }
    if (rank + bit < p) rounds.push_back({.from = rank + bit, .in = subtree(rank + bit, bit), .reduce = reduce});
  }
  return rounds;
}

Algorithm tree() {
  return {.name = "tree", .reduce = [](int rank, const Blocks& b) { return to_root(rank, b, true); }};
}

}  // namespace trireme::collectives
