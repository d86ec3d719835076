// Cluster: a described set of machines, for simulation and virtual time: nodes, their devices' speeds, the links
// between them. All times are integer nanoseconds, so that sums of them are the same in any order.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/call.h"

namespace trireme {

/// Nanoseconds: of a clock, or between two of its readings.
using Nanoseconds = std::int64_t;
/// Rounded to the nearest. Throws Error from 1e8 s on, as do all below that return times.
Nanoseconds nanoseconds(double seconds);

/// Where a number comes from. What is computed from several has the weakest of theirs: the last of these.
enum class Source : std::uint8_t { measured, datasheet, assumed };
std::string to_string(Source);  ///< "measured", "data sheet", "assumed"

/// What a call took on a machine, from the moment when all of its ranks were in it.
struct MeasuredCall {
  CallKind kind = CallKind::all_reduce;
  int ranks = 2;
  Index bytes = 0;     ///< of the whole vector
  double seconds = 0;  ///< median
  bool operator==(const MeasuredCall&) const = default;
};

/// What a message takes from one rank to another: latency + bytes / bandwidth.
struct Link {
  double latency = 0;                            ///< seconds before the first byte arrives, at least 0
  double bandwidth = 0;                          ///< bytes per second; 0: any number
  double efficiency = 1;                         ///< the share of the bandwidth that transfers reach, in (0, 1]
  double oversubscription = 1;                   ///< at least 1: when all ranks send at once each gets 1 / this of it
  Source source = Source::assumed;               ///< of these numbers
  std::vector<MeasuredCall> measured = {};       ///< instead, for calls of these kinds and numbers of ranks
  bool operator==(const Link&) const = default;  ///< member by member

  /// Seconds per byte of a transfer; 0: none.
  double per_byte() const { return bandwidth > 0 ? oversubscription / (bandwidth * efficiency) : 0; }
};

/// Nodes that are alike.
struct NodeGroup {
  int count = 1;                                      ///< nodes, at least 1
  int devices = 1;                                    ///< of each, at least 1; a rank runs on one
  double speed = 1;                                   ///< of a device; costs of computation are divided by it, above 0
  double memory = 0;                                  ///< bytes of a device; 0: not told
  Source source = Source::assumed;                    ///< of the speed
  bool operator==(const NodeGroup&) const = default;  ///< member by member
};

struct Cluster {
  std::vector<NodeGroup> nodes = {{}};  ///< ranks lie on their devices in this order
  /// Ranks are dealt to the nodes in turn, as long as they have devices, else node by node (Slurm's
  /// --distribution=cyclic and block): the last ranks, which may be servers, then lie beside the first.
  bool cyclic = false;
  Link inside, between;  ///< links of two ranks of one node, and of two nodes
  /// Standard deviation of the logarithm of the factor (of median 1) by which each computation takes longer; 0: none.
  double jitter = 0;
  static constexpr double most_jitter = 3;
  std::uint64_t seed = 0;  ///< of jitter
  double flops = 1e11;     ///< floating-point operations per second of a device of speed 1
  std::string name = {};   ///< for reports
  /// Whether messages and collectives go on beside computation. False: ranks carry collectives out while they wait, as
  /// the threads and processes of a host without devices of its own for that do.
  bool overlaps = true;
  bool operator==(const Cluster&) const = default;  ///< member by member

  int devices() const;              ///< of all nodes: as many ranks fit
  int node_of(int rank) const;      ///< index of the rank's node. Throws Error for a rank that has no device
  double speed_of(int rank) const;  ///< of the rank's device. Throws Error for a rank that has no device
  /// The link that a collective of these ranks (of the world) waits for: `inside` where one node has them all.
  const Link& link(std::span<const int> ranks) const;
  /// What a computation takes that takes `cost` on a device of speed 1 without jitter. key: of the computation, among
  /// those of its rank; equal keys, equal times.
  Nanoseconds compute(Nanoseconds cost, int rank, std::uint64_t key) const;
};
/// Throws Error naming the member that is missing or impossible, one line.
void validate(const Cluster&);

/// What a message takes once both ends have started and the link is free: as measured (kind send), else latency + bytes
/// / bandwidth.
Nanoseconds message_time(const Link&, Index bytes);
/// What a collective of `ranks` ranks takes from the moment when the last of them has started it, along rings
/// (Patarasuk and Yuan, JPDC 69, 2009). bytes n: of the whole vector (Call::count elements). With latency a and b
/// seconds per byte: all_reduce 2(p-1)(a + n/p b), reduce_scatter, all_gather and all_to_all (p-1)(a + n/p b),
/// broadcast, reduce, gather and scatter (p-1)a + n b, barrier and split (p-1)a. 0 for one rank. Where Link::measured
/// has the kind for as many ranks: the line through the sizes beside n, and beyond the largest in proportion to bytes.
Nanoseconds collective_time(const Link&, CallKind, int ranks, Index bytes);

}  // namespace trireme
