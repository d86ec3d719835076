#include <bit>

#include "parallel/comm/collectives/collectives.h"

namespace trireme::collectives {
namespace {

int power_of_two(const Blocks& b) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks(b)))); }

// Both partners of a level have the same window of blocks. Each keeps the sum of one half of it.
Rounds halving(int rank, const Blocks& blocks) {
  Rounds rounds;
  int begin = 0;
  for (int half = ranks(blocks) / 2; half > 0; half /= 2) {
    const Slice lower{block(blocks, begin).begin, block(blocks, begin + half).begin},
        upper{lower.end, block(blocks, begin + 2 * half - 1).end};
    const bool low = (rank & half) == 0;
    rounds.push_back({rank ^ half, low ? upper : lower, rank ^ half, low ? lower : upper, true});
    if (!low) begin += half;
  }
  return rounds;
}

Rounds halving_folded(int rank, const Blocks& b) { return folded(rank, b, power_of_two(b), false, halving); }

}  // namespace

Algorithm rabenseifner() {
  return {.name = "rabenseifner", .reduce_scatter = halving_folded, .all_reduce = [](int rank, const Blocks& b) {
            return folded(rank, b, power_of_two(b), true,
                          [](int r, const Blocks& among) { return there_and_back(halving(r, among)); });
          }};
}

Algorithm recursive_doubling() {
  const auto doubling = [](int rank, const Blocks& b) {
    const Slice all{0, b.back()};
    Rounds rounds;
    for (int bit = 1; bit < ranks(b); bit *= 2) rounds.push_back({rank ^ bit, all, rank ^ bit, all, true});
    return rounds;
  };
  return {
      .name = "recursive_doubling",
      .reduce = tree().reduce,
      .reduce_scatter = halving_folded,
      .all_reduce = [doubling](int rank, const Blocks& b) { return folded(rank, b, power_of_two(b), true, doubling); }};
}

}  // namespace trireme::collectives
