// simulate(): predicts when each action of each rank runs on a described cluster, by discrete events in integer
// nanoseconds.
//
// Ranks are run by the same Interpreter as real plans (parallel/plan/interpreter.h); only the ends of actions are
// computed. A rank's link carries one operation at a time, in the order in which the rank starts them.
// - A message leaves when its sender has started it and the sender's link is free, whether or not the receiver waits.
//   It arrives after message_time. A recv ends when it has started and the message has arrived.
// - A collective begins when its last rank has started it and has a free link. It takes collective_time of all its
//   links.
// - An operation without other ranks on its axis takes no time and no link.
// - Messages of a part's layers (PartInfo::comms: batch norm's sums, halos, tensor parallelism) extend the action by
//   the time of their calls, one after another, over the whole axis. The action does not wait for other ranks and does
//   not occupy the link.
// - An on_ready action starts after the share of the backward's time given by parallel/plan/order.h.
//
// A rank begins its next step when all its actions of the previous one have ended. A rank of a program that messages
// start takes arrived messages, from senders in turn, when it is idle. It runs phases as its Inbox says, one at a time;
// no rank waits for its sends. Its step ends with the last phase.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/cluster.h"
#include "parallel/runtime/timeline.h"

namespace trireme {

/// Folding: whether one rank represents the ranks of a program. This is possible if devices have one speed, each
/// communication of a program uses the same kind of link on all its ranks, programs do not give their positions
/// (Program::where), and collectives are not simulated by messages. With jitter, ranks must not exchange messages by
/// rules (Peer::pairs), either. Jitter is then not sampled: the expected maximum over ranks that wait for each other is
/// used (sim_jitter.h).
enum class Folding : std::uint8_t {
  automatic,  ///< if possible; with jitter only for more than most_drawn ranks
  folded,     ///< always; Error if it is not possible
  unfolded,   ///< never
  /// Like automatic, but also if links differ: a communication uses the link between nodes if any rank of the program
  /// does.
  slowest
};

/// Most ranks for which Folding::automatic samples jitter.
inline constexpr int most_drawn = 256;

/// A cluster of one device per node.
Cluster flat_cluster(int ranks, const Link& = {});

/// Costs in seconds on a device of speed 1, in addition to the parts' PartCost.
struct SimulateOptions {
  std::optional<Cluster> cluster = {};  ///< rank r runs on device r; none: flat_cluster, with links that take no time
  Index element = 4;                    ///< bytes of a parameter, of a buffer element and of the loss
  double loss = 0;                      ///< per micro-batch
  double update = 0;                    ///< per updated parameter
  double overhead = 0;                  ///< of the host, per computing action and per call that begins
  double fresh = 0;                     ///< per byte that an action returns to the system and that is allocated again
  /// If ranks carry out communication themselves (Cluster::overlaps): the later of a message's two ranks copies it, as
  /// between threads. False: the receiver copies it when it waits. Ignored for folded ranks with jitter.
  bool second_copies = false;
  double vector_op = 0;  ///< per byte of the vector, for each of ActionRow::vector_ops
  /// Measured duration of a collective, with encoding and mixing; below 0: from the cluster.
  std::function<double(const Action&)> measured = {};
  double between_steps = 0;  ///< time between the end of a step and the next
  /// First simulated step: phases that do not run in a step take no time. No message is in flight before it.
  std::int64_t step = 0;
  int steps = 1;  ///< number of consecutive steps, at least 1
  Folding folding = Folding::automatic;
  /// Empty: collectives take collective_time(). Else they are simulated by messages (collective_messages.h),
  /// all-reduces with this algorithm: "ring", "tree", ... Not for measured calls.
  std::string collectives = {};
  int rows = 64;  ///< unfolded: most ranks in the timeline; with more ranks it has the first of each program
};

/// Use of a rank's link along one axis over all steps.
struct AxisTraffic {
  std::string axis;    ///< name in actions: "data", "data+h"
  double seconds = 0;  ///< busy with messages and collectives, and with layers' messages
  Index bytes = 0;     ///< sum over steps of planned_traffic, without sums over parts of divided weights
  bool operator==(const AxisTraffic&) const = default;  ///< member by member
};

/// A program's calls of one purpose in all steps.
struct CallTime {
  std::string what = {};           ///< "batch norm statistics", or action and payload: "all_reduce gradients"
  std::string axis = {};           ///< as in AxisTraffic
  CallKind kind = CallKind::send;  ///< which operation
  int ranks = 1;                   ///< of a call
  std::string algorithm = {};      ///< of the largest call: algorithm_of(), or SimulateOptions::collectives
  Index largest = 0;               ///< its bytes
  Index calls = 0;                 ///< number of calls of a rank
  double seconds = 0;              ///< of a rank's link in these calls; mean over ranks
};

struct Simulation {
  /// Rank by rank, step by step. Spans do not include waits for a link or a partner, except for recv.
  Timeline timeline;
  std::vector<int> ranks;  ///< world ranks in the timeline; folded: one of each program, in order
  /// By stream and by rank of the timeline: actions in the order of their starts.
  std::array<std::vector<std::vector<ActionId>>, 2> started;
  bool folded = false;
  bool expected = false;     ///< whether jitter is the expected maximum over ranks that wait for each other
  double makespan = 0;       ///< seconds until the last rank ends its last step
  std::vector<double> busy;  ///< seconds of computation without layers' messages, by program, mean over its ranks
  /// Idle over busy time of all ranks; 0: always busy. For equal stages (p - 1) / m under 1F1B.
  double bubble = 0;
  /// Exposed communication by program, mean over its ranks. seconds: computation waited while a call along the axis was
  /// in progress, with all layers' messages; bytes: of these calls. A call is in progress once its sender, or the last
  /// of its ranks, has started it; earlier waits for slower ranks are idle time (`bubble`). A worker's wait for a
  /// server counts completely. Axes without exposed communication are omitted.
  std::vector<std::vector<AxisTraffic>> exposed;
  std::vector<int> in_flight;                     ///< peak_in_flight(), by program
  std::vector<std::vector<AxisTraffic>> traffic;  ///< by program, mean over its ranks; axes in order of first use
  std::vector<std::vector<CallTime>> calls;       ///< by program, longest first
};

/// Simulates steps on the mesh Plan::axes. Ranks are in row-major order, the last axis varies fastest. All ranks begin
/// the first step together, without messages in flight. A message is one tensor: the output of its part, or the
/// gradient of that output. The plan must be checked. Throws Error for a plan that does not end, and for a cluster with
/// fewer devices than ranks.
Simulation simulate(const Plan&, const SimulateOptions& = {});

}  // namespace trireme
