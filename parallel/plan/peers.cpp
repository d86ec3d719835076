#include "parallel/plan/peers.h"

#include <bit>

#include "parallel/comm/fnv.h"

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
      Fnv fnv;
      fnv.add(key_, round, right);
      left ^= (fnv.value() ^ fnv.value() >> 29) & mask;
      std::swap(left, right);
    }
    return right << half_ | left;
  }

  std::uint64_t n_, key_;
  int half_;  // bits
};

int wrapped(std::int64_t at, int ranks) { return static_cast<int>((at % ranks + ranks) % ranks); }

}  // namespace

RankPair peers_at(const Peer& peer, int rank, int ranks, std::int64_t step) {
  if (ranks == 1) return {rank, rank};
  if (peer.pairs.empty()) return {wrapped(rank + peer.offset, ranks), wrapped(rank - peer.offset, ranks)};
  if (peer.pairs == "exponential") {
    const int rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
    const std::int64_t hop = std::int64_t{1} << (step % rounds);
    return {wrapped(rank + hop, ranks), wrapped(rank - hop, ranks)};
  }
  int other = rank;
  if (peer.pairs == "ring") {
    const int at = wrapped(rank - step % 2, ranks), its = at ^ 1;
    other = its < ranks ? wrapped(its + step % 2, ranks) : rank;
  } else if (peer.pairs == "matching") {
    Fnv key;
    key.add(peer.seed, step);
    const Permutation order(ranks, key.value());
    const int its = order(rank) ^ 1;
    if (its < ranks) other = order.inverse(its);
  } else {
    fail("peers", "there is no rule '{}' for pairs: use ring, exponential or matching", peer.pairs);
  }
  return {other, other};
}

}  // namespace trireme
