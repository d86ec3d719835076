#include "parallel/plan/peers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "kernels/core/random.h"

namespace trireme {
namespace {

/// A permutation of [0, n) that needs no table: four rounds of a Feistel network (Luby and Rackoff 1988) over an even
/// number of bits, repeated until the number is below n (cycle walking: Black and Rogaway 2002).
class Permutation {
 public:
  Permutation(int n, std::uint64_t key)
      : n_(static_cast<std::uint64_t>(n)), key_(key), half_((std::bit_width(n_ | 2) + 1) / 2) {}
  int operator()(int at) const { return walk(at, {0, 1, 2, 3}); }
  int inverse(int at) const { return walk(at, {3, 2, 1, 0}); }

 private:
  int walk(int at, const std::array<int, 4>& rounds) const {
    auto x = static_cast<std::uint64_t>(at);
    do x = network(x, rounds);
    while (x >= n_);
    return static_cast<int>(x);
  }
  /// Ends with the halves exchanged, so that the rounds backwards undo it.
  std::uint64_t network(std::uint64_t x, const std::array<int, 4>& rounds) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = x >> half_, right = x & mask;
    for (int round : rounds) {
      left ^= mix(mix(key_, static_cast<std::uint64_t>(round)), right) & mask;
      std::swap(left, right);
    }
    return right << half_ | left;
  }

  std::uint64_t n_, key_;
  int half_;  // bits
};

int wrapped(std::int64_t at, int ranks) { return static_cast<int>((at % ranks + ranks) % ranks); }

/// The ranks next to one on a grid of rows x columns, round its edges, each once.
std::vector<RankPair> beside(int rank, int rows, int columns) {
  std::vector<RankPair> all;
  const int row = rank / columns, column = rank % columns;
  for (const auto& [down, right] : {std::pair{0, 1}, {0, -1}, {1, 0}, {-1, 0}}) {
    const int other = wrapped(row + down, rows) * columns + wrapped(column + right, columns);
    const RankPair pair{other, other};
    if (other != rank && std::ranges::find(all, pair) == all.end()) all.push_back(pair);
  }
  return all;
}

/// The rank that one of them draws in a step: any of the others.
int target_of(const Peer& peer, int rank, int ranks, std::int64_t step) {
  const std::uint64_t drawn = mix(mix(peer.seed, static_cast<std::uint64_t>(step)), static_cast<std::uint64_t>(rank));
  const int other = static_cast<int>(drawn % static_cast<std::uint64_t>(ranks - 1));
  return other + (other >= rank);
}

/// The odd rank that an even one draws in a step.
int odd_target_of(const Peer& peer, int rank, int ranks, std::int64_t step) {
  const std::uint64_t drawn = mix(mix(peer.seed, static_cast<std::uint64_t>(step)), static_cast<std::uint64_t>(rank));
  if (peer.pairs == "bipartite") return static_cast<int>(drawn % static_cast<std::uint64_t>(ranks / 2)) * 2 + 1;
  return wrapped(rank + (drawn % 2 == 0 ? 1 : -1), ranks);
}

}  // namespace

std::vector<RankPair> peers_at(const Peer& peer, int rank, int ranks, std::int64_t step) {
  if (ranks == 1) return {};
  if (peer.pairs.empty()) {
    if (peer.offset % ranks == 0) return {};
    return {{wrapped(rank + peer.offset, ranks), wrapped(rank - peer.offset, ranks)}};
  }
  if (peer.pairs == "ring") return beside(rank, 1, ranks);
  if (peer.pairs == "torus") {
    int rows = static_cast<int>(std::sqrt(ranks));
    while (ranks % rows != 0) --rows;
    return beside(rank, rows, ranks / rows);
  }
  if (peer.pairs == "exponential") {
    const int rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
    const std::int64_t hop = std::int64_t{1} << (step % rounds);
    return {{wrapped(rank + hop, ranks), wrapped(rank - hop, ranks)}};
  }
  if (peer.pairs == "random_target") {
    std::vector<RankPair> all{{target_of(peer, rank, ranks, step), rank}};
    for (int other = 0; other < ranks; ++other)
      if (other != rank && target_of(peer, other, ranks, step) == rank) all.push_back({rank, other});
    return all;
  }
  if (peer.pairs == "bipartite" || peer.pairs == "bipartite_ring") {
    std::vector<RankPair> all;
    if (rank % 2 == 0) {
      const int odd = odd_target_of(peer, rank, ranks, step);
      return {{odd, odd}};
    }
    for (int even = 0; even < ranks; even += 2)
      if (odd_target_of(peer, even, ranks, step) == rank) all.push_back({even, even});
    return all;
  }
  check(peer.pairs == "matching", "peers",
        "there is no rule '{}' for pairs: use ring, torus, exponential, matching, random_target, bipartite or "
        "bipartite_ring",
        peer.pairs);
  const Permutation order(ranks, mix(peer.seed, static_cast<std::uint64_t>(step)));
  const int its = order(rank) ^ 1;
  if (its >= ranks) return {};
  const int other = order.inverse(its);
  return {{other, other}};
}

}  // namespace trireme
