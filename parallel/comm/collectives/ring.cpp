#include "parallel/comm/collectives/collectives.h"

namespace trireme::collectives {

Rounds ring_reduce_scatter(int rank, const Blocks& blocks, int shift) {
  const int p = ranks(blocks), right = (rank + 1) % p, left = (rank + p - 1) % p;
  const auto chunk = [&](int i) { return block(blocks, (i + 2 * p) % p); };
  Rounds rounds;
  for (int at = rank + shift - 1; at > rank + shift - p; --at)
    rounds.push_back({right, chunk(at), left, chunk(at - 1), true});
  return rounds;
}

Algorithm ring() {
  return {.name = "ring",
          .reduce_scatter = [](int rank, const Blocks& b) { return ring_reduce_scatter(rank, b); },
          .all_reduce = [](int rank, const Blocks& b) { return there_and_back(ring_reduce_scatter(rank, b, 1)); }};
}

}  // namespace trireme::collectives
