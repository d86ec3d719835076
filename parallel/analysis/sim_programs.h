// SimPrograms: a plan's programs as the simulator runs them: per action what it is, what it costs and what waits for
// it, in flat lists without names.
#pragma once
#include <vector>

#include "parallel/analysis/simulate.h"
#include "parallel/comm/world/rank_grid.h"

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
  enum class Is : std::uint8_t { compute, send, recv, collective } is = Is::compute;
  bool ring = false;                ///< message: along another axis than the programs'
  int axis = -1;                    ///< of SimPrograms::axes: of a collective or send
  int nth = 0;                      ///< collective: among the program's along the axis
  std::size_t along = 0;            ///< message: position of its mesh axis
  int offset = 0;                   ///< message: to the other end
  ActionId partner = -1;            ///< message: in the list of the other end's program; -1: none
  Nanoseconds cost = 0;             ///< compute: on a device of speed 1 without jitter
  Nanoseconds took[2] = {0};        ///< of the link, inside a node and between nodes
  Index bytes = 0;                  ///< AxisTraffic::bytes
  int waits = 0;                    ///< for so many: its dependencies
  std::vector<SimComm> comms = {};  ///< compute
};

/// `to` waits for so much of the action (Dependency::share).
struct SimEdge {
  ActionId to;
  double share;
};

struct SimProgram {
  std::vector<SimAction> actions;
  std::vector<SimEdge> edges;                      ///< action by action
  std::vector<int> first_edge;                     ///< of each action, and behind the last
  std::vector<std::vector<ActionId>> collectives;  ///< by axis: in list order
};

struct SimPrograms {
  SimPrograms(const Plan&, const SimulateOptions&, const Cluster&);

  RankGrid grid;                  ///< of mesh_of
  std::size_t stage_axis;         ///< position of the programs' axis; the number of axes: there is one program
  std::vector<std::string> axes;  ///< those of collectives and sends, in order of first use
  std::vector<SimProgram> programs;
  /// By which Cluster::compute tells computations of a rank apart, over all steps: as the executor has it.
  std::uint64_t key(int program, ActionId id) const {
    return static_cast<std::uint64_t>(options_.step * std::ssize(programs[program].actions) + id);
  }
  int program_of(int rank) const { return programs.size() > 1 ? grid.coordinate(rank, stage_axis) : 0; }

 private:
  void prepare(int program);
  void pair_messages();
  int axis_of(const std::string& name);
  void add_collective(SimProgram&, const Action&, SimAction&);
  void add_comms(const Action&, SimAction&);
  Nanoseconds cost_of(const Action&) const;

  const Plan& plan_;
  const SimulateOptions& options_;
  const Cluster& cluster_;
};

}  // namespace trireme
