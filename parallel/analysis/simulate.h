// simulate(plan): when each action of each rank would run on a described cluster, by discrete events in integer
// nanoseconds.
//
// Each rank is gone through by the Interpreter that also carries plans out (parallel/plan/interpreter.h); here
// nothing is done but to reckon when it ends. A rank's link carries one operation at a time, in the order in which the
// rank starts them. A message leaves when its sender has started it and the sender's link is free, whether or not the
// other side waits for it, and has arrived after message_time; a recv ends when it has started and the message has
// arrived. A collective begins when the last of its ranks has started it and has its link free, and takes
// collective_time of all their links. What has nobody else on its axis takes no time and no link. What a part's layers
// send (PartInfo::comms: batch norm's sums, halos, tensor parallelism) makes the action longer by the time of its
// calls, one behind the other, over the whole axis; it does not wait for other ranks, nor does it occupy the link. An
// on_ready action starts after the share of the backward's time that parallel/plan/check/order.h says.
//
// A rank begins its next step when all actions of the one before have ended, whatever others do. A rank of a program
// that messages start takes what has come to it, of the senders by turns, when it has nothing to do, and runs phases as
// its Inbox says, one at a time; nobody waits for what it sends. Its step ends with the phase that is the last.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/cluster.h"
#include "parallel/runtime/timeline.h"

namespace trireme {

/// Whether ranks of one program that cannot differ but by jitter are simulated once. They may where devices have one
/// speed, each communication of a program goes over the same kind of link for all of its ranks, programs do not say
/// where they run (Program::where), and collectives do not go by messages; with jitter where ranks exchange no messages
/// by rules (Peer::pairs), either. Jitter is then no longer drawn: the expected largest of the ranks that wait for each
/// other counts (sim_jitter.h).
enum class Folding : std::uint8_t {
  automatic,  ///< where they may; with jitter, of more than most_drawn ranks
  folded,     ///< an Error where they may not
  unfolded,   ///< every rank
  /// Also where they differ in their links: each communication of a program goes between nodes if it does for any of
  /// its ranks. Else as automatic.
  slowest
};

/// The most ranks whose jitter is drawn where Folding::automatic decides.
inline constexpr int most_drawn = 256;

/// A device for each of so many ranks, on nodes of their own.
Cluster flat_cluster(int ranks, const Link& = {});

/// Computations cost what the parts' PartCost says, and, in seconds on a device of speed 1, these.
struct SimulateOptions {
  std::optional<Cluster> cluster = {};  ///< rank r runs on device r; none: flat_cluster, whose links take no time
  Index element = 4;                    ///< bytes of a parameter, a buffer and the loss
  double loss = 0;                      ///< of one micro-batch's loss
  double update = 0;                    ///< per updated parameter
  double overhead = 0;                  ///< of the host, per action that computes and call that begins
  double fresh = 0;                     ///< per byte that an action gives back to the system, and that comes anew
  /// Where ranks carry communication out (Cluster::overlaps): of a message's two ranks the one that comes to it later
  /// copies it, as among threads; else the one that receives it does when it waits for it. Not of folded ranks with
  /// jitter.
  bool second_copies = false;
  double vector_op = 0;  ///< per byte of the vector, of each of ActionRow::vector_ops
  /// What a collective takes that was measured as it is, encoding and mixing included; below 0: as the cluster says.
  std::function<double(const Action&)> measured = {};
  double between_steps = 0;  ///< from the end of a step to the next: what a program does there
  /// The first that is simulated: phases that do not run in a step take no time. Nothing is in flight before it.
  std::int64_t step = 0;
  int steps = 1;  ///< simulated one behind the other, at least 1
  Folding folding = Folding::automatic;
  /// Empty: collectives take collective_time(). Else they go by single messages (collective_messages.h), all-reduces by
  /// this algorithm: "ring", "tree", ...; the sums of layers (PartInfo::comms) and those that were measured do not.
  std::string collectives = {};
  int rows = 64;  ///< unfolded: the most ranks that the timeline has; of more it has the first of each program
};

/// What a rank's link does along one axis in all steps.
struct AxisTraffic {
  std::string axis;    ///< as its actions name it: "data", "data+h"
  double seconds = 0;  ///< that it is busy with messages and collectives, and its layers send
  Index bytes = 0;  ///< as planned_traffic counts them, step by step, but for the looks at the norm of divided weights
  bool operator==(const AxisTraffic&) const = default;  ///< member by member
};

struct Simulation {
  /// Rank by rank, step by step; waiting for a link or a partner is not in the spans, save those of recv and pull.
  Timeline timeline;
  std::vector<int> ranks;  ///< of the world: those in the timeline; folded: one of each program, in order
  /// By stream and by rank of the timeline: the actions in the order in which they start.
  std::array<std::vector<std::vector<ActionId>>, 2> started;
  bool folded = false;
  bool expected = false;     ///< jitter is the expected largest of the ranks that wait for each other
  double makespan = 0;       ///< seconds until the last rank has ended its last step
  std::vector<double> busy;  ///< seconds of computation without what layers send, by program, mean of its ranks
  /// Idle over busy time, all ranks together: 0 is a full machine. For equal stages (p - 1) / m under 1F1B.
  double bubble = 0;
  /// By program, mean of its ranks: seconds for which computation stood still while a call along the axis was under
  /// way, all that layers send included; bytes: of these calls. A call is under way once its sender, or the last of its
  /// ranks, has started it: waits for slower ranks before that are idle time (`bubble`). A worker's wait for a server
  /// counts whole. An axis that held nothing up is left out.
  std::vector<std::vector<AxisTraffic>> exposed;
  std::vector<int> in_flight;                     ///< peak_in_flight, by program
  std::vector<std::vector<AxisTraffic>> traffic;  ///< by program, mean of its ranks; the axes in order of first use
};

/// Steps on the mesh Plan::axes: ranks in row-major order, the last axis fastest, all begin the first together, when no
/// message is under way. A message is one tensor: the output of its part, or that output's gradient. The plan has been
/// checked; throws Error for one that does not end, and for a cluster with fewer devices than ranks.
Simulation simulate(const Plan&, const SimulateOptions& = {});

}  // namespace trireme
