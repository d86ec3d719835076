#include "parallel/analysis/sim_programs.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/order.h"
#include "parallel/plan/planned_traffic.h"

namespace trireme {
namespace {

/// The executor's one thread goes through the list: what communicates starts once the computation before it has ended,
/// but for what starts in the midst of backward.
void add_host_order(const Program& program, std::vector<std::vector<Dependency>>& waits) {
  ActionId before = -1;
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[id];
    if (a.stream == Stream::compute)
      before = id;
    else if (before >= 0 && !a.on_ready)
      waits[id].push_back({before, 1.0});
  }
}

}  // namespace

std::vector<Axis> mesh_of(const Plan& plan) {
  std::vector<Axis> axes = plan.axes;
  const int programs = static_cast<int>(plan.programs.size());
  if (programs > 1 && std::ranges::find(axes, plan.stage_axis, &Axis::name) == axes.end())
    axes.insert(axes.begin(), {plan.stage_axis, programs});
  return axes;
}

SimPrograms::SimPrograms(const Plan& plan, const SimulateOptions& options, const Cluster& cluster)
    : grid(mesh_of(plan)),
      stage_axis(grid.find(plan.stage_axis)),
      programs(plan.programs.size()),
      plan_(plan),
      options_(options),
      cluster_(cluster) {
  const int count = static_cast<int>(programs.size());
  check(count == 1 || grid.axes()[stage_axis].size == count, "simulate", "{} programs on an axis {} of {} ranks", count,
        plan.stage_axis, count == 1 ? 1 : grid.axes()[stage_axis].size);
  for (int r = 0; r < count; ++r) prepare(r);
  pair_messages();
  for (SimProgram& program : programs) program.collectives.resize(axes.size());
}

void SimPrograms::prepare(int r) {
  const auto& list = plan_.programs[r].actions;
  auto waits = dependencies(plan_.programs[r], plan_.parts);
  add_host_order(plan_.programs[r], waits);
  SimProgram& program = programs[r];
  program.actions.resize(list.size()), program.first_edge.resize(list.size() + 1);
  for (ActionId id = 0; id < std::ssize(list); ++id) {
    const Action& a = list[id];
    SimAction& s = program.actions[id];
    s.waits = static_cast<int>(waits[id].size());
    for (const Dependency& d : waits[id]) ++program.first_edge[d.on + 1];
    if (!plan_.programs[r].trigger(a).runs_at(options_.step)) continue;
    if (is_collective(a))
      add_collective(program, a, s);
    else if (!is_message(a))
      s.cost = cost_of(a), add_comms(a, s);
  }
  for (std::size_t i = 1; i <= list.size(); ++i) program.first_edge[i] += program.first_edge[i - 1];
  program.edges.resize(program.first_edge.back());
  std::vector<int> next(program.first_edge.begin(), program.first_edge.end() - 1);
  for (ActionId id = 0; id < std::ssize(list); ++id)
    for (const Dependency& d : waits[id]) program.edges[next[d.on]++] = {id, d.share};
}

int SimPrograms::axis_of(const std::string& name) {
  const auto at = std::ranges::find(axes, name);
  if (at != axes.end()) return static_cast<int>(at - axes.begin());
  axes.push_back(name);
  return static_cast<int>(axes.size()) - 1;
}

void SimPrograms::add_collective(SimProgram& program, const Action& a, SimAction& s) {
  const int ranks = size_along(grid.axes(), a.peer.axis);
  if (ranks == 1) return;
  s.is = SimAction::Is::collective, s.axis = axis_of(a.peer.axis);
  program.collectives.resize(axes.size());
  s.nth = static_cast<int>(program.collectives[s.axis].size());
  program.collectives[s.axis].push_back(static_cast<ActionId>(&s - program.actions.data()));
  for (const PlannedCall& call : calls_of(a, ranks, options_.element)) {
    s.bytes += call.bytes;
    for (bool between : {false, true})
      s.took[between] += collective_time(between ? cluster_.between : cluster_.inside, call.kind, ranks, call.bytes);
  }
}

void SimPrograms::add_comms(const Action& a, SimAction& s) {
  for (const PartComm& c : comms_of(plan_.parts, a)) {
    const int ranks = size_along(grid.axes(), c.axis);
    const Index each = c.bytes / std::max<Index>(1, c.calls);
    const auto call = [&](const Link& link) {
      const bool message = c.kind == CallKind::send || c.kind == CallKind::recv;
      return ranks == 1 ? 0 : message ? message_time(link, each) : collective_time(link, c.kind, ranks, each);
    };
    s.comms.push_back({axis_of(c.axis), {c.calls * call(cluster_.inside), c.calls * call(cluster_.between)}, c.bytes});
  }
}

/// Sends and receives of two programs meet by what they carry, those that carry the same in list order.
void SimPrograms::pair_messages() {
  using Key = std::tuple<int, int, std::string, int, int, int, Index>;
  std::map<Key, std::queue<ActionId>> sends;
  const auto prepare_message = [&](int r, ActionId id, int sign) {
    const Action& a = plan_.programs[r].actions[id];
    SimAction& s = programs[r].actions[id];
    s.is = a.kind == ActionKind::send ? SimAction::Is::send : SimAction::Is::recv;
    s.along = grid.find(a.peer.axis), s.offset = a.peer.offset, s.ring = a.peer.axis != plan_.stage_axis;
    const int other = s.ring ? r : r + a.peer.offset;
    return Key(sign > 0 ? r : other, sign > 0 ? other : r, a.peer.axis, sign * a.peer.offset, a.part, a.microbatch,
               a.slice.begin);
  };
  for (int r = 0; r < std::ssize(programs); ++r)
    for (ActionId id = 0; id < std::ssize(programs[r].actions); ++id) {
      const Action& a = plan_.programs[r].actions[id];
      if (a.kind != ActionKind::send) continue;
      sends[prepare_message(r, id, 1)].push(id);
      if (!plan_.programs[r].trigger(a).runs_at(options_.step)) continue;
      SimAction& s = programs[r].actions[id];
      s.axis = axis_of(a.peer.axis), s.bytes = a.part >= 0 ? plan_.parts[a.part].cost.output : 0;
      s.took[0] = message_time(cluster_.inside, s.bytes), s.took[1] = message_time(cluster_.between, s.bytes);
    }
  for (int r = 0; r < std::ssize(programs); ++r)
    for (ActionId id = 0; id < std::ssize(programs[r].actions); ++id) {
      const Action& a = plan_.programs[r].actions[id];
      if (a.kind != ActionKind::recv) continue;
      const Key key = prepare_message(r, id, -1);
      auto& queue = sends[key];
      check(!queue.empty(), "simulate", "program {}: {}: nobody sends it", plan_.programs[r].name,
            [&] { return to_string(a); });
      programs[r].actions[id].partner = queue.front();
      programs[std::get<0>(key)].actions[queue.front()].partner = id;
      queue.pop();
    }
}

Nanoseconds SimPrograms::cost_of(const Action& a) const {
  if (a.kind == ActionKind::loss) return nanoseconds(options_.loss);
  if (a.kind == ActionKind::update)
    return nanoseconds(options_.update * static_cast<double>(a.slice.size()) /
                       (a.peer.root < 0 ? size_along(grid.axes(), a.peer.axis) : 1));
  return nanoseconds(seconds_of(plan_, a));
}

}  // namespace trireme
