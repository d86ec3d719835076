// Cluster: a description of machines for simulation and virtual time: nodes, the speeds of their devices, and the links
// between them. All times are integer nanoseconds, so sums are the same in any order.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/call.h"

namespace trireme {

/// A clock reading or a time span in nanoseconds.
using Nanoseconds = std::int64_t;
/// Seconds as nanoseconds, rounded to the nearest. Throws Error from 1e8 s on, as do all functions below that return
/// times.
Nanoseconds nanoseconds(double seconds);

/// Where a number comes from, best first. A number computed from several has the weakest of their sources.
enum class Source : std::uint8_t { measured, datasheet, assumed };
std::string to_string(Source);  ///< "measured", "data sheet", "assumed"

/// Measured duration of a call on a machine, from the moment when all of its ranks have entered it.
struct MeasuredCall {
  CallKind kind = CallKind::all_reduce;                  ///< which operation
  int ranks = 2;                                         ///< ranks of the call
  Index bytes = 0;                                       ///< size of the whole vector
  double seconds = 0;                                    ///< median duration
  bool operator==(const MeasuredCall&) const = default;  ///< member by member
};

/// The time of a message between two ranks: latency + bytes / bandwidth.
struct Link {
  double latency = 0;                            ///< seconds before the first byte arrives, at least 0
  double bandwidth = 0;                          ///< bytes per second; 0: unlimited
  double efficiency = 1;                         ///< share of the bandwidth that transfers reach, in (0, 1]
  double oversubscription = 1;                   ///< at least 1; if all ranks send at once, each gets bandwidth / this
  Source source = Source::assumed;               ///< source of these numbers
  std::vector<MeasuredCall> measured = {};       ///< replace the formula for calls of these kinds and rank counts
  bool operator==(const Link&) const = default;  ///< member by member

  /// Seconds per byte of a transfer; 0: none.
  double per_byte() const { return bandwidth > 0 ? oversubscription / (bandwidth * efficiency) : 0; }
};

/// A number of identical nodes.
struct NodeGroup {
  int count = 1;                    ///< nodes, at least 1
  int devices = 1;                  ///< devices per node, at least 1; each rank runs on one
  double speed = 1;                 ///< relative speed of a device, above 0; computation times are divided by it
  double memory = 0;                ///< bytes per device; 0: unknown
  Source source = Source::assumed;  ///< source of the speed
  bool operator==(const NodeGroup&) const = default;  ///< member by member
};

/// A description of the machines of a run: see the head of this file.
struct Cluster {
  std::vector<NodeGroup> nodes = {{}};  ///< ranks are placed on their devices in this order
  /// True: ranks are dealt to the nodes in turn while nodes have free devices (Slurm's --distribution=cyclic). False:
  /// node by node (block). With cyclic, the last ranks, which may be servers, share nodes with the first ranks.
  bool cyclic = false;
  Link inside,  ///< link of two ranks on one node
      between;  ///< link of two ranks on different nodes
  /// Standard deviation of the logarithm of a random slowdown factor (median 1) of each computation, in [0,
  /// most_jitter]; 0: no jitter.
  double jitter = 0;
  static constexpr double most_jitter = 3;  ///< upper limit of jitter
  std::uint64_t seed = 0;                   ///< random seed of jitter
  double flops = 1e11;                      ///< floating-point operations per second of a device of speed 1
  std::string name = {};                    ///< name in reports
  /// Whether messages and collectives overlap with computation. False: ranks carry out collectives while they wait,
  /// like threads and processes of a host without dedicated communication hardware.
  bool overlaps = true;
  bool operator==(const Cluster&) const = default;  ///< member by member

  int devices() const;              ///< devices of all nodes: the largest number of ranks
  int node_of(int rank) const;      ///< index of the rank's node. Throws Error for a rank without a device
  double speed_of(int rank) const;  ///< speed of the rank's device. Throws Error for a rank without a device
  /// The link that limits a collective of these world ranks: `inside` if all are on one node, else `between`.
  const Link& link(std::span<const int> ranks) const;
  /// The duration, on this rank's device and with jitter, of a computation that takes `cost` on a device of speed 1.
  /// key: identifies the computation within its rank; equal keys give equal times.
  Nanoseconds compute(Nanoseconds cost, int rank, std::uint64_t key) const;
};
/// Throws a one-line Error that names the missing or impossible member.
void validate(const Cluster&);

/// The duration of a message once both ends have started and the link is free: as measured (kind send), else latency +
/// bytes / bandwidth.
Nanoseconds message_time(const Link&, Index bytes);
/// The duration of a collective of `ranks` ranks, from the moment when its last rank starts it, along rings
/// (Patarasuk and Yuan, JPDC 69, 2009). bytes n: of the whole vector (Call::count elements). With latency a and b
/// seconds per byte: all_reduce 2(p-1)(a + n/p b), reduce_scatter, all_gather and all_to_all (p-1)(a + n/p b),
/// broadcast, reduce, gather and scatter (p-1)a + n b, barrier and split (p-1)a. 0 for one rank. If Link::measured has
/// this kind for this number of ranks: linear interpolation between the neighbouring sizes, and proportional to bytes
/// beyond the largest.
Nanoseconds collective_time(const Link&, CallKind, int ranks, Index bytes);

}  // namespace trireme
