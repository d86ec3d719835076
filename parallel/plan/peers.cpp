#include "parallel/plan/peers.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/core/random.h"

namespace trireme {
namespace {

/// A permutation of [0, n) that needs no table, as near to uniform for few numbers as for many: swap-or-not (Hoang,
/// Morris and Rogaway 2012). A round draws a number k; of each pair x, k - x (modulo n) it exchanges both or none.
class Permutation {
 public:
  Permutation(int n, std::uint64_t key)
      : n_(static_cast<std::uint64_t>(n)), key_(key), rounds_(24 + 6 * std::bit_width(n_)) {}
  int operator()(int at) const {
    auto x = static_cast<std::uint64_t>(at);
    for (int round = 0; round < rounds_; ++round) x = swapped(x, round);
    return static_cast<int>(x);
  }
  int inverse(int at) const {
    auto x = static_cast<std::uint64_t>(at);
    for (int round = rounds_ - 1; round >= 0; --round) x = swapped(x, round);
    return static_cast<int>(x);
  }

 private:
  std::uint64_t swapped(std::uint64_t x, int round) const {
    const std::uint64_t key = mix(key_, static_cast<std::uint64_t>(round));
    const std::uint64_t other = (key % n_ + n_ - x) % n_;
    return mix(key, std::max(x, other)) >> 63 != 0 ? other : x;
  }

  std::uint64_t n_, key_;
  int rounds_;
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
  if (ranks == 1 || peer.pairs.empty()) return {};
  if (peer.pairs == "ring") return beside(rank, 1, ranks);
  if (peer.pairs == "directed_ring") return {{wrapped(rank + 1, ranks), wrapped(rank - 1, ranks)}};
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
        "there is no rule '{}' for pairs: use ring, directed_ring, torus, exponential, matching, random_target, bipartite or "
        "bipartite_ring",
        peer.pairs);
  const Permutation order(ranks, mix(peer.seed, static_cast<std::uint64_t>(step)));
  const int its = order(rank) ^ 1;
  if (its >= ranks) return {};
  const int other = order.inverse(its);
  return {{other, other}};
}

}  // namespace trireme
