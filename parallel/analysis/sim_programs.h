// SimPrograms: a plan's programs as the simulator runs them: per action what it is, what it costs and what waits for
// it, in flat lists without names.
#pragma once
#include <span>
#include <vector>

#include "parallel/analysis/simulate.h"
#include "parallel/async/inbox.h"
#include "parallel/comm/world/rank_grid.h"
#include "parallel/plan/action_row.h"

namespace trireme {

/// The plan's mesh; in front the axis of its programs, where the plan names no sizes.
std::vector<Axis> mesh_of(const Plan&);

/// What the layers of a part send in an action that computes (PartInfo::comms).
struct SimComm {
  int axis;             ///< of SimPrograms::axes
  Nanoseconds took[2];  ///< all its calls, inside a node and between nodes
  Index bytes;          ///< AxisTraffic::bytes
};

/// One action of a program.
struct SimAction {
  /// What computes, or does nothing that takes time; the ends of a message between programs; those of one on a channel.
  enum class Is : std::uint8_t { compute, send, recv, collective, push, pull } is = Is::compute;
  bool ring = false;              ///< send, recv: along another axis than the programs'
  bool is_clock = false;          ///< push: of the sender's updates
  bool reports = false;           ///< reports_loss()
  bool ahead = false;             ///< send: to whom Peer::pairs says; nobody waits for it before it runs again
  bool trades = false;            ///< send: to whom Peer::pairs says; it ends when theirs have come, too
  int axis = -1;                  ///< of SimPrograms::axes: of what goes over the link
  int nth = 0;                    ///< collective: among the program's along the axis; push, pull: number of the channel
  std::size_t along = 0;          ///< message: position of its mesh axis
  int offset = 0;                 ///< send, recv: to the other end; push, pull: its coordinate, -1: the senders'
  const Peer* peer = nullptr;     ///< push, pull, what is ahead or trades
  ActionId partner = -1;          ///< send, recv: in the list of the other end's program; -1: none
  int phase = 0;                  ///< of the program
  int back = 0;                   ///< MicroBatch::steps_ago
  const Trigger* rare = nullptr;  ///< null: it runs in all steps that are simulated
  Nanoseconds cost = 0;           ///< compute: on a device of speed 1 without jitter
  Nanoseconds took[2] = {0};      ///< of the link, inside a node and between nodes
  Index bytes = 0;                ///< AxisTraffic::bytes, of one message
  Nanoseconds mixes = 0;          ///< what is computed with what has come (ActionRow::vector_ops)
  bool is_inline = false;         ///< it computes: those behind it start when it has ended
  bool in_midst = false;          ///< it starts in the midst of a backward (SimProgram::inner)
  std::span<const ActionId> after = {};  ///< Action::after
  std::vector<SimComm> comms = {};       ///< compute
  std::vector<PlannedCall> calls = {};   ///< collective that goes by messages
};

/// A reduction that starts when so much of a backward is done (Dependency::share).
struct SimInner {
  ActionId reduction;
  double share;
};

struct SimProgram {
  std::vector<SimAction> actions;
  std::vector<std::vector<SimInner>> inner;        ///< of each action, in the order of their starts
  std::vector<std::vector<ActionId>> collectives;  ///< by axis: in list order
  ActionId last_update = -1;                       ///< -1: it updates nothing
};

struct SimPrograms {
  /// All must outlive it.
  SimPrograms(const Plan&, const SimulateOptions&, const Cluster&);

  const Plan& plan;
  const SimulateOptions& options;
  const Cluster& cluster;
  RankGrid grid;                          ///< of mesh_of
  std::size_t stage_axis;                 ///< position of the programs' axis; the number of axes: there is one program
  std::vector<std::string> axes;          ///< those of collectives and messages, in order of first use
  std::vector<std::vector<int>> members;  ///< parallel to axes: Peer::members; an axis comes once for each
  std::vector<std::string> channels;      ///< channels_of
  std::vector<SimProgram> programs;
  std::vector<int> program_of;  ///< by rank
  std::vector<int> first_rank;  ///< of each program
  /// The ranks of a grid, this one's or one with fewer ranks along some axes, that do a collective along one of `axes`
  /// together.
  RankLines lines(const RankGrid&, int axis) const;
  /// The rank whose coordinate along an action's axis is `at`.
  int rank_at(int rank, const SimAction& a, int at) const {
    return grid.neighbour(rank, a.along, at - grid.coordinate(rank, a.along), true);
  }
  /// Whom a rank pushes to, or pulls from.
  int root_at(int rank, const SimAction& a) const {
    return rank_at(rank, a, root_of(*a.peer, grid.coordinate(rank, a.along)));
  }
  /// Whether it runs in a step; these count from 0, the first that is simulated.
  bool is_due(const SimAction& a, int step) const {
    return (!a.rare || a.rare->runs_at(options.step + step)) && a.back <= step;
  }
  /// By which Cluster::compute tells computations of a rank apart, over all steps: as the executor has it.
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
  void add_channel(const Program&, const Action&, SimAction&);
  void add_trade(int program, const Action&, SimAction&);
  void add_calls(int program, const Action&, SimAction&);
  Nanoseconds mixing(int program, const Action&) const;
  Nanoseconds cost_of(int program, const Action&) const;
};

}  // namespace trireme
