#include "parallel/analysis/sim_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "parallel/analysis/collective_messages.h"
#include "parallel/async/channel_plan.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/model/planned_traffic.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/check/order.h"

namespace trireme {

std::vector<Axis> mesh_of(const Plan& plan) {
  std::vector<Axis> axes = plan.axes;
  if (plan.has_stages() && std::ranges::find(axes, plan.stage_axis, &Axis::name) == axes.end())
    axes.insert(axes.begin(), {plan.stage_axis, static_cast<int>(plan.programs.size())});
  return axes;
}

SimPrograms::SimPrograms(const Plan& p, const SimulateOptions& o, const Cluster& c)
    : plan(p),
      options(o),
      cluster(c),
      grid(mesh_of(plan)),
      stage_axis(grid.find(plan.stage_axis)),
      channels(channels_of(plan)),
      programs(plan.programs.size()),
      program_of(static_cast<std::size_t>(grid.size())),
      first_rank(programs.size(), -1) {
  place();
  for (int r = 0; r < std::ssize(programs); ++r) prepare(r);
  pair_messages();
  for (SimProgram& program : programs) program.collectives.resize(axes.size());
}

void SimPrograms::place() {
  const int count = static_cast<int>(programs.size());
  const int stages = stage_axis < grid.axes().size() ? grid.axes()[stage_axis].size : 1;
  check(count == 1 || !plan.programs.front().where.empty() || stages == count, "simulate",
        "{} programs on an axis {} of {} ranks", count, plan.stage_axis, stages);
  for (int rank = 0; rank < grid.size(); ++rank) {
    const int program =
        plan.programs.front().where.empty()
            ? count == 1 ? 0 : grid.coordinate(rank, stage_axis)
            : plan.program_at([&](const std::string& axis) { return grid.coordinate(rank, grid.find(axis)); });
    program_of[rank] = program;
    if (first_rank[program] < 0) first_rank[program] = rank;
  }
  for (int r = 0; r < count; ++r)
    check(first_rank[r] >= 0, "simulate", "program {} has no ranks", plan.programs[r].name);
}

RankLines SimPrograms::lines(const RankGrid& of, int axis) const {
  const auto names = names_in(axes[axis]);
  const bool shared = std::ranges::any_of(plan.programs, [&](const Program& p) {
    return std::ranges::any_of(
        p.where, [&](const CoordinateRange& r) { return std::ranges::find(names, r.axis) != names.end(); });
  });
  std::vector<int> kinds;  // by rank
  if (shared && of.size() == grid.size()) kinds = program_of;
  for (int rank = 0; !members[axis].empty() && rank < of.size(); ++rank)
    kinds.push_back(std::ranges::find(members[axis], of.coordinate(rank, stage_axis)) != members[axis].end());
  return of.lines(axes[axis], kinds);
}

int SimPrograms::size(int program, const std::string& axis) const {
  const Program& p = plan.programs[program];
  return p.where.empty() ? size_along(grid.axes(), axis) : plan.size(p, axis);
}

void SimPrograms::prepare(int r) {
  const auto& list = plan.programs[r].actions;
  SimProgram& program = programs[r];
  program.actions.resize(list.size());
  program.inner.resize(list.size());
  std::vector<int> runs;  // by phase
  for (const ProgramPhase& phase : plan.programs[r].phases) {
    int& count = runs.emplace_back(phase.trigger.channel.empty() ? 0 : options.steps);
    for (int step = 0; step < options.steps; ++step) count += phase.trigger.runs_at(options.step + step);
  }
  for (ActionId id = 0; id < std::ssize(list); ++id) {
    const Action& a = list[id];
    SimAction& s = program.actions[id];
    s.phase = a.phase;
    s.back = a.microbatch.steps_ago;
    s.is_inline = a.stream == Stream::compute;
    s.after = a.after;
    s.along = grid.find(a.peer.axis);
    s.peer = &a.peer;
    if (a.kind == ActionKind::update) program.last_update = id;
    if (runs[a.phase] < options.steps) s.rare = &plan.programs[r].trigger(a);
    if (runs[a.phase] == 0) continue;
    if (is_collective(a) && !a.peer.pairs.empty())
      add_trade(r, a, s);
    else if (is_collective(a))
      add_collective(r, a, s);
    else if (is_channel(a))
      add_channel(plan.programs[r], a, s);
    else if (a.kind->calls && size(r, a.peer.axis) > 1)
      add_calls(r, a, s);
    else if (!is_message(a)) {
      s.answers = is_custom(a) && !a.peer.pairs.empty() && size(r, a.peer.axis) > 1;
      s.cost = cost_of(r, a);
      add_comms(r, a, s);
    }
    if (s.is != SimAction::Is::compute) s.mixes = mixing(r, a);
    if (s.axis >= 0) give_purpose(r, a, s);
  }
  const auto waits = dependencies(plan.programs[r], plan.parts);
  for (ActionId id = 0; id < std::ssize(list); ++id) {
    SimAction& s = program.actions[id];
    if (!list[id].on_ready || !is_reduction(list[id]) || s.is != SimAction::Is::collective) continue;
    const Dependency* last = nullptr;  // backward
    for (const Dependency& d : waits[id])
      if (is_backward(list[d.on]) && (!last || d.on > last->on)) last = &d;
    if (last) {
      program.inner[last->on].push_back({id, last->share});
      s.in_midst = true;
    }
  }
}

int SimPrograms::axis_of(const std::string& name, const std::vector<int>& of) {
  for (int axis = 0; axis < std::ssize(axes); ++axis)
    if (axes[axis] == name && members[axis] == of) return axis;
  axes.push_back(name);
  members.push_back(of);
  return static_cast<int>(axes.size()) - 1;
}

int SimPrograms::ranks_of(int r, const Action& a) const {
  return a.peer.members.empty() ? size(r, a.peer.axis) : static_cast<int>(std::ssize(a.peer.members));
}

void SimPrograms::give_purpose(int r, const Action& a, SimAction& s) {
  CallTime made{.what = to_string(a.kind) + " " + to_string(a.payload), .ranks = 2, .largest = s.bytes};
  if (s.is == SimAction::Is::collective) {
    const auto calls = calls_of(plan, a, ranks_of(r, a), options.element, options.step);
    s.count = std::ssize(calls);
    made.ranks = ranks_of(r, a);
    made.largest = 0;
    for (const PlannedCall& c : calls)
      if (c.bytes >= made.largest) std::tie(made.kind, made.largest) = std::tuple(c.kind, c.bytes);
  }
  s.purpose = purpose(r, made, s.axis);
}

/// Index of a purpose among the program's, which it joins if it is new.
int SimPrograms::purpose(int r, const CallTime& made, int axis) {
  auto& all = programs[r].purposes;
  auto at = std::ranges::find_if(all, [&](const CallTime& c) {
    return c.what == made.what && c.axis == axes[axis] && c.kind == made.kind && c.ranks == made.ranks;
  });
  if (at == all.end()) {
    at = all.insert(all.end(), made);
    at->axis = axes[axis];
  }
  at->largest = std::max(at->largest, made.largest);
  const bool messages = !options.collectives.empty() && CollectiveMessages::has(made.kind);
  at->algorithm = !messages ? algorithm_of(cluster.between, made.kind, made.ranks, at->largest)
                  : made.kind == CallKind::all_reduce ? options.collectives
                                                      : "ring";
  return static_cast<int>(at - all.begin());
}

void SimPrograms::add_collective(int r, const Action& a, SimAction& s) {
  const int ranks = ranks_of(r, a);
  if (ranks == 1) return;
  SimProgram& program = programs[r];
  s.is = SimAction::Is::collective;
  s.axis = axis_of(a.peer.axis, a.peer.members);
  program.collectives.resize(axes.size());
  s.nth = static_cast<int>(program.collectives[s.axis].size());
  program.collectives[s.axis].push_back(static_cast<ActionId>(&s - program.actions.data()));
  const double measured = options.measured ? options.measured(a) : -1;
  if (measured >= 0) s.took[0] = s.took[1] = nanoseconds(measured);
  for (const PlannedCall& call : calls_of(plan, a, ranks, options.element, options.step)) {
    s.bytes += call.bytes;
    if (measured < 0 && !options.collectives.empty()) s.calls.push_back(call);
    for (bool between : {false, true})
      if (measured < 0)
        s.took[between] += collective_time(between ? cluster.between : cluster.inside, call.kind, ranks, call.bytes);
  }
}

/// Ranks that exchange messages by a rule: each waits only for its own peers.
void SimPrograms::add_trade(int r, const Action& a, SimAction& s) {
  const int ranks = size(r, a.peer.axis);
  if (ranks == 1) return;
  s.is = SimAction::Is::send;
  s.trades = true;
  s.axis = axis_of(a.peer.axis);
  const double measured = options.measured ? options.measured(a) : -1;
  const auto calls = calls_of(plan, a, ranks, options.element, options.step);
  for (const PlannedCall& call : calls) {
    s.bytes += call.bytes;
    s.took[0] = message_time(cluster.inside, call.bytes);
    s.took[1] = message_time(cluster.between, call.bytes);
    if (measured >= 0) s.took[0] = s.took[1] = nanoseconds(measured / static_cast<double>(calls.size()));
  }
}

/// Time on the link of custom messages, whose receivers may not exist.
void SimPrograms::add_calls(int r, const Action& a, SimAction& s) {
  s.is = SimAction::Is::send;
  s.ahead = true;
  Index largest = 0;  // a header comes with its vector
  for (const PlannedCall& call : calls_of(plan, a, size(r, a.peer.axis), options.element, options.step))
    largest = std::max(largest, call.bytes);
  add_message(a, s, largest);
}

/// The header of a channel message takes no extra time.
void SimPrograms::add_channel(const Program& program, const Action& a, SimAction& s) {
  if (sums_messages(a)) return;
  s.is = a.kind == ActionKind::send ? SimAction::Is::push : SimAction::Is::pull;
  s.offset = a.peer.root;
  s.nth = static_cast<int>(std::ranges::lower_bound(channels, a.peer.channel) - channels.begin());
  if (s.is == SimAction::Is::pull) return;
  s.is_clock = a.payload == OperandKind::clock;
  s.reports = reports_loss(a);
  add_message(a, s, is_number(a) ? size_of(DType::f64) : a.slice.size() * options.element);
  const int first = plan.range(program, a.peer.axis).begin;
  const int to = receivers_of(plan, a.peer, first, senders_to(plan, program.trigger(a).channel, first)).at(0);
  if (serves_at(plan, a.peer.axis, to)) s.bytes += sizeof(MessageHeader);
}

void SimPrograms::add_message(const Action& a, SimAction& s, Index bytes) {
  s.axis = axis_of(a.peer.axis);
  s.bytes = bytes;
  s.took[0] = message_time(cluster.inside, bytes);
  s.took[1] = message_time(cluster.between, bytes);
}

/// Duration of one call of a layer. By messages: of the slowest line of ranks of that kind, if all begin together.
Nanoseconds SimPrograms::layer_call(const PlannedCall& c, int axis, int ranks, Index bytes, bool between) {
  const Link& link = between ? cluster.between : cluster.inside;
  if (ranks == 1) return 0;
  if (c.kind == CallKind::send || c.kind == CallKind::recv) return message_time(link, bytes);
  if (options.collectives.empty() || !CollectiveMessages::has(c.kind))
    return collective_time(link, c.kind, ranks, bytes);
  const auto [at, fresh] = by_messages_.try_emplace({axis, c.kind, bytes});
  if (fresh) {
    const RankLines all = lines(grid, axis);
    std::vector<std::vector<int>> groups;
    for (int line = 0; line < all.lines(); ++line)
      groups.emplace_back(all.members.begin() + all.first[line], all.members.begin() + all.first[line + 1]);
    const auto times = CollectiveMessages(cluster, grid.size(), options.collectives).times(groups, c.kind, bytes);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const int node = cluster.node_of(groups[g].front());
      const bool apart = std::ranges::any_of(groups[g], [&](int rank) { return cluster.node_of(rank) != node; });
      at->second[apart] = std::max(at->second[apart], times[g]);
    }
  }
  return at->second[between];
}

void SimPrograms::add_comms(int r, const Action& a, SimAction& s) {
  for (const PlannedCall& c : comms_of(plan.parts, a)) {
    const int ranks = size(r, c.axis), axis = axis_of(c.axis);
    const Index each = c.bytes / std::max<Index>(1, c.calls);
    const auto call = [&](bool between) { return c.calls * layer_call(c, axis, ranks, each, between); };
    const std::string what = c.move.empty() ? fmt::format("{} of layers", name_of(c.kind)) : c.move;
    const bool message = c.kind == CallKind::send || c.kind == CallKind::recv;
    s.comms.push_back({axis,
                       {call(false), call(true)},
                       c.bytes,
                       purpose(r, {.what = what, .kind = c.kind, .ranks = message ? 2 : ranks, .largest = each}, axis),
                       c.calls});
  }
}

/// Matches sends and receives of two programs by operand; equal messages match in list order.
void SimPrograms::pair_messages() {
  using Key = std::tuple<int, int, OperandKind, int, int>;  // programs at the ends, operand, part, micro-batch
  std::map<Key, std::queue<ActionId>> sends;
  const auto prepare_message = [&](int r, ActionId id) {
    const Action& a = plan.programs[r].actions[id];
    SimAction& s = programs[r].actions[id];
    s.is = a.kind == ActionKind::send ? SimAction::Is::send : SimAction::Is::recv;
    s.offset = a.peer.offset;
    const int there = grid.neighbour(first_rank[r], s.along, s.offset);
    const int other = there < 0 ? -1 : program_of[there];
    return s.is == SimAction::Is::send ? Key(r, other, a.payload, a.part, a.microbatch.index)
                                       : Key(other, r, a.payload, a.part, a.microbatch.index);
  };
  for (int r = 0; r < std::ssize(programs); ++r)
    for (ActionId id = 0; id < std::ssize(programs[r].actions); ++id) {
      const Action& a = plan.programs[r].actions[id];
      if (a.kind != ActionKind::send || is_channel(a)) continue;
      sends[prepare_message(r, id)].push(id);
      add_message(a, programs[r].actions[id], a.part >= 0 ? plan.parts[a.part].cost.output : 0);
      give_purpose(r, a, programs[r].actions[id]);
    }
  for (int r = 0; r < std::ssize(programs); ++r)
    for (ActionId id = 0; id < std::ssize(programs[r].actions); ++id) {
      const Action& a = plan.programs[r].actions[id];
      if (a.kind != ActionKind::recv || is_channel(a)) continue;
      const Key key = prepare_message(r, id);
      auto& queue = sends[key];
      check(!queue.empty(), "simulate", "program {}: {}: no program sends it", plan.programs[r].name,
            [&] { return to_string(a); });
      programs[r].actions[id].partner = queue.front();
      programs[std::get<0>(key)].actions[queue.front()].partner = id;
      queue.pop();
    }
}

Nanoseconds SimPrograms::mixing(int r, const Action& a) const {
  if (options.vector_op == 0 || !a.kind->vector_ops || (options.measured && options.measured(a) >= 0)) return 0;
  return nanoseconds(options.vector_op * static_cast<double>(a.slice.size() * options.element) *
                     a.kind->vector_ops(a, size(r, a.peer.axis)));
}

Nanoseconds SimPrograms::cost_of(int r, const Action& a) const {
  if (a.kind == ActionKind::loss) return nanoseconds(options.loss);
  if (a.kind == ActionKind::update)
    return nanoseconds(options.update * static_cast<double>(a.slice.size()) /
                       (a.peer.root < 0 ? size(r, a.peer.axis) : 1));
  if (a.kind == ActionKind::drop) {
    const int ranks = size(r, a.peer.axis);  // each rank keeps its shard
    return nanoseconds(options.fresh * static_cast<double>(a.slice.size() * options.element) * (ranks - 1) / ranks);
  }
  return nanoseconds(seconds_of(plan, a)) + mixing(r, a);
}

}  // namespace trireme
