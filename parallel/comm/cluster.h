// Cluster: a description of machines for simulation and virtual time: nodes, the speeds of their devices, and the links
// between them. All times are integer nanoseconds, so sums are the same in any order.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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

/// Sizes of vectors, in bytes, up to which collectives take algorithms of few rounds (collective_time()). Both 0: rings
/// for all.
struct CollectiveSizes {
  Index doubling = 0;  ///< rounds of the whole vector: recursive doubling, binomial trees
  Index halving = 0;   ///< rounds of halves: recursive halving and doubling
  bool operator==(const CollectiveSizes&) const = default;  ///< member by member
};
/// MPICH 4: MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE, and the sizes from which all-gathers and reduce-scatters take rings
/// (MPIR_CVAR_ALLGATHER_LONG_MSG_SIZE, MPIR_CVAR_REDUCE_SCATTER_COMMUTATIVE_LONG_MSG_SIZE).
inline constexpr CollectiveSizes mpich_sizes{2048, 524288};

/// The time of a message between two ranks: latency + bytes / bandwidth.
struct Link {
  double latency = 0;                            ///< seconds before the first byte arrives, at least 0
  double bandwidth = 0;                          ///< bytes per second; 0: unlimited
  double efficiency = 1;                         ///< share of the bandwidth that transfers reach, in (0, 1]
  double oversubscription = 1;                   ///< at least 1; if all ranks send at once, each gets bandwidth / this
  Source source = Source::assumed;               ///< source of these numbers
  std::vector<MeasuredCall> measured = {};       ///< replace the formula for calls of these kinds and rank counts
  CollectiveSizes sizes = {};                    ///< choose the algorithms of collectives
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

/// What a device of speed 1 does in a second, for costs counted from shapes. A kernel takes the longer of its
/// operations and its bytes.
struct DeviceRates {
  double flops = 1e12;                  ///< floating-point operations
  double memory_bandwidth = flops / 8;  ///< bytes of operands read and written
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
  double memory_bandwidth = 0;              ///< its bytes per second to memory; 0: flops / 8, as on cores of a host
  std::string name = {};                    ///< name in reports
  /// Whether messages and collectives overlap with computation. False: ranks carry out collectives while they wait,
  /// like threads and processes of a host without dedicated communication hardware.
  bool overlaps = true;
  bool operator==(const Cluster&) const = default;  ///< member by member

  DeviceRates rates() const;        ///< of a device of speed 1
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
/// The algorithm whose time collective_time() charges: "ring", "chain", "recursive doubling", "halving and doubling",
/// "binomial tree", "pairwise", "dissemination", "measured".
std::string_view algorithm_of(const Link&, CallKind, int ranks, Index bytes);
/// The duration of a collective of `ranks` ranks, from the moment when its last rank starts it. bytes n: of the whole
/// vector (Call::count elements). a: latency, b: seconds per byte, q: largest power of two up to p, L: log2 p rounded
/// up. Link::sizes chooses the algorithm, as MPICH does (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005).
/// - Up to `doubling`: all_reduce log2 q (a + n b); reduce and broadcast L (a + n b).
/// - Up to `halving`: reduce_scatter and all_gather log2 q a + (q-1)/q n b; all_reduce twice that; broadcast and reduce
///   (log2 q + L) a + 2 (q-1)/q n b. all_reduce, reduce_scatter and all_gather of p > q ranks take 2(a + n b) more.
/// - Beyond: rings (Patarasuk and Yuan, JPDC 69, 2009). all_reduce 2(p-1)(a + n/p b), reduce_scatter and all_gather
///   (p-1)(a + n/p b), broadcast and reduce (p-1)a + n b along a chain.
/// - gather and scatter take L a + n b if Link::sizes is set, else (p-1)a + n b; barrier and split L a or (p-1)a;
///   all_to_all always (p-1)(a + n/p b).
///
/// 0 for one rank. If Link::measured has this kind for this number of ranks: linear interpolation between the
/// neighbouring sizes, and proportional to bytes beyond the largest.
Nanoseconds collective_time(const Link&, CallKind, int ranks, Index bytes);

}  // namespace trireme
