#include "parallel/async/channel_plan.h"

#include <algorithm>
#include <set>

namespace trireme {
namespace {

template <class F>
void each_send(const Plan& plan, F f) {
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions)
      if (sends_to_channel(a)) f(program, a);
}

constexpr int most_answers = 4;  // length of a chain of answers to answers

/// answers: number of links of such a chain that are followed.
std::vector<int> senders_to(const Plan& plan, const std::string& channel, int root, int answers) {
  std::set<int> senders;
  each_send(plan, [&](const Program& program, const Action& a) {
    if (a.peer.channel != channel || (a.peer.root < 0 && answers == 0)) return;
    const CoordinateRange along = plan.range(program, a.peer.axis);
    const std::string& to = a.peer.senders_of.empty() ? program.trigger(a).channel : a.peer.senders_of;
    for (int i = along.begin; i < along.end; ++i) {
      const bool sends = a.peer.root >= 0 ? root_of(a.peer, i) == root
                                          : std::ranges::binary_search(senders_to(plan, to, i, answers - 1), root);
      if (sends) senders.insert(i);
    }
  });
  return {senders.begin(), senders.end()};
}

}  // namespace

std::vector<std::string> channels_of(const Plan& plan) {
  std::set<std::string> names;
  each_send(plan, [&](const Program&, const Action& a) { names.insert(a.peer.channel); });
  return {names.begin(), names.end()};
}

std::vector<int> senders_to(const Plan& plan, const std::string& channel, int root) {
  return senders_to(plan, channel, root, most_answers);
}

std::vector<int> receivers_of(const Plan& plan, const Peer& peer, int coordinate, const std::vector<int>& started) {
  if (peer.root >= 0) return {root_of(peer, coordinate)};
  return peer.senders_of.empty() ? started : senders_to(plan, peer.senders_of, coordinate);
}

std::string axis_of(const Plan& plan, const std::string& channel) {
  std::string axis;
  each_send(plan, [&](const Program&, const Action& a) {
    if (a.peer.channel == channel) axis = a.peer.axis;
  });
  return axis;
}

int messages_in_step(const Program& program, const Trigger& trigger, int senders) {
  const auto is_other = [&](const ProgramPhase& p) {
    return p.trigger.channel == trigger.channel && p.trigger.late != trigger.late;
  };
  const auto other = std::ranges::find_if(program.phases, is_other);
  if (other == program.phases.end()) return senders;
  return trigger.late ? senders - other->trigger.count : trigger.count;
}

int updates_in_step(const Plan& plan, const Program& program) {
  const auto update = std::ranges::find(program.actions, ActionKind::update, &Action::kind);
  if (update == program.actions.end()) return 1;
  const Trigger& t = program.trigger(*update);
  if (t.channel.empty() || t.count == 0) return 1;
  const int root = plan.range(program, axis_of(plan, t.channel)).begin;
  const auto senders = static_cast<int>(senders_to(plan, t.channel, root).size());
  return std::max(1, messages_in_step(program, t, senders) / t.count);
}

bool serves_at(const Plan& plan, const std::string& axis, int coordinate) {
  return std::ranges::any_of(plan.programs, [&](const Program& p) {
    const CoordinateRange along = plan.range(p, axis);
    return p.serves() && along.begin <= coordinate && coordinate < along.end;
  });
}

bool depends_on_arrivals(const Plan& plan) {
  return std::ranges::any_of(plan.consistency, [&](const auto& promised) {
    const auto& [axis, how] = promised;
    if (plan.size(axis) == 1 || (axis == plan.stage_axis && plan.has_stages())) return false;
    return how.kind == Consistency::Kind::stale ||
           (how.kind == Consistency::Kind::gossip && how.bound == Consistency::unbounded);
  });
}

bool meets_by_messages(const Plan& plan) {
  return std::ranges::any_of(plan.programs, &Program::serves) || depends_on_arrivals(plan);
}

bool hands_out_tickets(const Program& program) {
  return program.serves() && std::ranges::any_of(program.actions, [](const Action& a) {
           return sends_to_channel(a) && a.payload == OperandKind::ticket && a.peer.root < 0;
         });
}

}  // namespace trireme
