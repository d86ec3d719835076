// Collectives as their single messages over the links of a cluster: to check the closed form, collective_time() of
// parallel/comm/cluster.h, and to see where it is wrong, since it knows neither that few of a node's ranks send to
// other nodes at once nor that nodes differ.
//
// A rank goes through the rounds of its schedule (parallel/comm/collectives/): it sends and receives at once, and
// begins the next round when both have ended. A message begins when its receiver has come to the round, too (as large
// ones do under MPI's rendezvous); it takes the link's latency, then its bytes flow, at most at bandwidth * efficiency.
// All messages to other nodes that a node of d devices sends at a time share d * bandwidth * efficiency /
// oversubscription, each alike; so do those that it receives, and those inside of it. A broadcast and a reduction to a
// root go along a chain in pieces so small that all ranks pass them on at once.
#pragma once
#include <string>
#include <vector>

#include "parallel/comm/cluster.h"
#include "parallel/comm/collectives/collectives.h"

namespace trireme {

class CollectiveMessages {
 public:
  /// Of the world: this many are quick.
  static constexpr int most_ranks = 256;

  /// algorithm: of all_reduce (collectives::find_algorithm: "ring", "tree", ...); reduce_scatter and all_gather go
  /// along rings. cluster must outlive it. Throws Error for more ranks, another name, and for links with measured
  /// calls.
  CollectiveMessages(const Cluster& cluster, int ranks, const std::string& algorithm);
  /// Whether calls of a kind go by messages: all_reduce, reduce_scatter, all_gather, broadcast, reduce.
  static bool has(CallKind);
  /// Of each group of ranks of the world, which have none in common: when its last rank has ended the call that all
  /// groups begin at 0.
  std::vector<Nanoseconds> times(const std::vector<std::vector<int>>& groups, CallKind, Index bytes) const;

 private:
  const Cluster& cluster_;
  const collectives::Algorithm ring_, all_reduce_;
};

}  // namespace trireme
