// SimPrograms: a plan's programs in the form that the simulator runs: for each action its type, costs and dependents,
// in flat lists without names.
#pragma once
#include <array>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "parallel/analysis/simulate.h"
#include "parallel/async/inbox.h"
#include "parallel/comm/world/rank_grid.h"
#include "parallel/plan/action_row.h"

namespace trireme {

/// The plan's mesh. If the plan gives no sizes, the axis of its programs comes first.
std::vector<Axis> mesh_of(const Plan&);

/// Messages of a part's layers in a computing action (PartInfo::comms).
struct SimComm {
  int axis;             ///< index into SimPrograms::axes
  Nanoseconds took[2];  ///< duration of all its calls, inside a node and between nodes
  Index bytes;          ///< AxisTraffic::bytes
  int purpose;          ///< index into SimProgram::purposes
  Index calls;          ///< number of calls
};

/// An action of a program.
struct SimAction {
  /// compute: computes, or takes no time. send, recv: ends of a message between programs. push, pull: ends of a message
  /// on a channel.
  enum class Is : std::uint8_t { compute, send, recv, collective, push, pull } is = Is::compute;
  bool is_clock = false;          ///< push: carries the sender's number of updates
  bool reports = false;           ///< reports_loss()
  bool ahead = false;             ///< send: to ranks by Peer::pairs; no rank waits for it before it runs again
  bool answers = false;           ///< compute: a passive rank answers what such sends have brought
  bool trades = false;            ///< send: to ranks by Peer::pairs; ends when their messages have arrived, too
  int axis = -1;                  ///< index into SimPrograms::axes, for communication
  int nth = 0;                    ///< collective: its index among the program's along the axis; push, pull: index of
                                  ///< the channel
  std::size_t along = 0;          ///< index of the mesh axis of its peer
  int offset = 0;                 ///< send, recv: offset to the other end; push, pull: coordinate of the other end, -1:
                                  ///< the senders'
  const Peer* peer = nullptr;     ///< of the plan's action
  ActionId partner = -1;          ///< send, recv: index in the other end's program; -1: none
  int phase = 0;                  ///< index in the program
  int back = 0;                   ///< MicroBatch::steps_ago
  const Trigger* rare = nullptr;  ///< null: it runs in all simulated steps
  Nanoseconds cost = 0;           ///< compute: on a device of speed 1 without jitter
  Nanoseconds took[2] = {0};      ///< of the link, inside a node and between nodes
  Index bytes = 0;                ///< AxisTraffic::bytes, of one message
  int purpose = -1;               ///< index into SimProgram::purposes, for communication
  Index count = 1;                ///< number of calls, for communication
  Nanoseconds mixes = 0;          ///< computation on the received values (ActionRow::vector_ops)
  bool is_inline = false;         ///< it computes: the next ones start when it has ended
  bool in_midst = false;          ///< it starts in the midst of a backward (SimProgram::inner)
  std::span<const ActionId> after = {};  ///< Action::after
  std::vector<SimComm> comms = {};       ///< compute
  std::vector<PlannedCall> calls = {};   ///< collective that goes by messages
};

/// A reduction that starts when a share of a backward is done (Dependency::share).
struct SimInner {
  ActionId reduction;
  double share;
};

struct SimProgram {
  std::vector<SimAction> actions;
  std::vector<std::vector<SimInner>> inner;        ///< by action, in the order of their starts
  std::vector<std::vector<ActionId>> collectives;  ///< by axis, in list order
  ActionId last_update = -1;                       ///< -1: the program has no update
  std::vector<CallTime> purposes;                  ///< without calls and seconds
};

struct SimPrograms {
  /// All arguments must outlive it.
  SimPrograms(const Plan&, const SimulateOptions&, const Cluster&);

  const Plan& plan;
  const SimulateOptions& options;
  const Cluster& cluster;
  RankGrid grid;                          ///< of mesh_of()
  std::size_t stage_axis;                 ///< index of the programs' axis; the number of axes if there is one program
  std::vector<std::string> axes;          ///< axes of collectives and messages, in order of first use
  std::vector<std::vector<int>> members;  ///< parallel to axes: Peer::members; an axis appears once for each set of
                                          ///< members
  std::vector<std::string> channels;      ///< channels_of()
  std::vector<SimProgram> programs;
  std::vector<int> program_of;  ///< by rank
  std::vector<int> first_rank;  ///< of each program
  /// The lines of ranks of a grid that do a collective along one of `axes` together. The grid is this one's, or has
  /// fewer ranks along some axes.
  RankLines lines(const RankGrid&, int axis) const;
  /// The rank whose coordinate along the action's axis is `at`.
  int rank_at(int rank, const SimAction& a, int at) const {
    return grid.neighbour(rank, a.along, at - grid.coordinate(rank, a.along));
  }
  /// The rank to which a rank pushes, or from which it pulls.
  int root_at(int rank, const SimAction& a) const {
    return rank_at(rank, a, root_of(*a.peer, grid.coordinate(rank, a.along)));
  }
  /// Whether the action runs in a step, counted from 0 for the first simulated one.
  bool is_due(const SimAction& a, int step) const {
    return (!a.rare || a.rare->runs_at(options.step + step)) && a.back <= step;
  }
  /// Key of a computation for Cluster::compute, unique for a rank over all steps; the same as the executor's.
  std::uint64_t key(int program, int step, ActionId id) const {
    return static_cast<std::uint64_t>((options.step + step) * std::ssize(programs[program].actions) + id);
  }

 private:
  void place();
  void prepare(int program);
  void pair_messages();
  int size(int program, const std::string& axis) const;
  int axis_of(const std::string& name, const std::vector<int>& members = {});
  void add_collective(int program, const Action&, SimAction&);
  void add_message(const Action&, SimAction&, Index bytes);
  void add_comms(int program, const Action&, SimAction&);
  int ranks_of(int program, const Action&) const;
  void give_purpose(int program, const Action&, SimAction&);
  int purpose(int program, const CallTime&, int axis);
  Nanoseconds layer_call(const PlannedCall&, int axis, int ranks, Index bytes, bool between);
  void add_channel(const Program&, const Action&, SimAction&);
  void add_trade(int program, const Action&, SimAction&);
  void add_calls(int program, const Action&, SimAction&);
  Nanoseconds mixing(int program, const Action&) const;

  /// Calls of layers that go by messages: durations inside a node and between nodes, by axis, kind and bytes.
  std::map<std::tuple<int, CallKind, Index>, std::array<Nanoseconds, 2>> by_messages_;
  Nanoseconds cost_of(int program, const Action&) const;
};

}  // namespace trireme
