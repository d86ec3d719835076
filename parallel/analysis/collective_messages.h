// CollectiveMessages: simulates the single messages of collectives over a cluster's links. It checks the closed form,
// collective_time() of parallel/comm/cluster.h, which neither models that few ranks of a node send to other nodes at a
// time, nor that nodes differ.
//
// A rank runs through the rounds of its schedule (parallel/comm/collectives/). It sends and receives at the same time,
// and begins the next round when both have ended. A message begins when its receiver has reached the round, too (as
// large messages under MPI's rendezvous). It takes the link's latency, then transfers its bytes with at most bandwidth
// * efficiency. All messages that a node of d devices sends to other nodes at a time share d * bandwidth * efficiency /
// oversubscription equally. So do those that it receives, and those inside it. A broadcast, and a reduction to a root,
// run along a chain in pieces so small that all ranks forward at the same time.
#pragma once
#include <string>
#include <vector>

#include "parallel/comm/cluster.h"
#include "parallel/comm/collectives/collectives.h"

namespace trireme {

class CollectiveMessages {
 public:
  /// Largest number of ranks; simulation is fast up to it.
  static constexpr int most_ranks = 256;

  /// algorithm: of all_reduce (collectives::find_algorithm: "ring", "tree", ...). reduce_scatter and all_gather use
  /// rings. cluster must outlive this object. Throws Error for more than most_ranks ranks, an unknown name, and links
  /// with measured calls.
  CollectiveMessages(const Cluster& cluster, int ranks, const std::string& algorithm);
  /// Whether this kind of call is simulated: all_reduce, reduce_scatter, all_gather, broadcast, reduce.
  static bool has(CallKind);
  /// Time at which each group's last rank has ended the call, if all groups begin it at 0. groups: disjoint, of world
  /// ranks.
  std::vector<Nanoseconds> times(const std::vector<std::vector<int>>& groups, CallKind, Index bytes) const;

 private:
  const Cluster& cluster_;
  const collectives::Algorithm ring_, all_reduce_;
};

}  // namespace trireme
