// The part of check(plan) for programs that messages start: the channels of their actions and phases.
#include <fmt/ranges.h>

#include <set>

#include "parallel/async/channel_plan.h"
#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/codec.h"

namespace trireme {
namespace {

constexpr int most_ranks = 4096;  // largest axis that play_channels() simulates

bool takes(const Program& program, const std::string& channel) {
  const auto receives = [&](const Action& a) { return waits_on_channel(a) && a.peer.channel == channel; };
  const auto waits = [&](const ProgramPhase& p) { return p.trigger.channel == channel || p.trigger.chosen == channel; };
  return std::ranges::any_of(program.phases, waits) || std::ranges::any_of(program.actions, receives);
}

/// The first and the last rank that the program's ranks send to, or receive from.
std::pair<int, int> roots(const Plan& plan, const Program& program, const Action& a) {
  const CoordinateRange along = plan.range(program, a.peer.axis);
  return {root_of(a.peer, along.begin), root_of(a.peer, along.end - 1)};
}

bool same_operand(const Action& a, const Action& b) { return a.payload == b.payload && a.slice == b.slice; }

/// A recv must match a send of the other rank's program to the channel.
void check_recv(const Plan& plan, const Program& program, ActionId id, Diagnostics& faults) {
  const Action& a = program.actions[static_cast<std::size_t>(id)];
  for (const Program& other : plan.programs) {
    const CoordinateRange along = plan.range(other, a.peer.axis);
    const auto [first, last] = roots(plan, program, a);
    if (last < along.begin || first >= along.end) continue;
    for (const Action& b : other.actions)
      if (sends_to_channel(b) && b.peer.channel == a.peer.channel && !same_operand(a, b))
        faults.add("{} waits for another operand than is sent: {}", place(program, id), to_string(b));
  }
}

/// Checks one action on a channel by itself.
void check_action(const Plan& plan, const Program& program, ActionId id, Diagnostics& faults) {
  const Action& a = program.actions[id];
  const Trigger& trigger = program.trigger(a);
  const bool answers = !trigger.channel.empty(), sends = sends_to_channel(a), sums = sums_messages(a);
  const auto at = [&] { return place(program, id); };
  if (answers && (is_collective(a) || is_message(a) || is_pass(a) || waits_on_channel(a)))
    faults.add("{} waits for other ranks, but messages start its phase, and such a phase must not wait", at());
  if (!answers && program.serves())
    faults.add("{} is of no phase that messages start, but messages start the phases of its program", at());
  if (!is_channel(a)) return;
  if (sums && a.peer.channel != trigger.channel)
    faults.add("{} takes the messages that started its phase, but no messages on '{}' start it", at(), a.peer.channel);
  if (a.payload == OperandKind::clock && (sums || (sends && !answers)))
    faults.add("{}: only a program that updates sends its clock, in answer to messages; it takes none", at());
  const bool names_senders = a.payload == OperandKind::senders && sends && answers && a.peer.root >= 0;
  const bool known = a.payload == OperandKind::weights || a.payload == OperandKind::gradients || is_number(a) ||
                     std::ranges::find(plan.state, payload_of(a), &State::name) != plan.state.end();
  if (!known && !names_senders)
    faults.add("{}: there are no '{}' to send: use weights, gradients, loss or a state of the plan", at(),
               payload_of(a));
  if (!is_number(a) && !names_senders && (a.slice.begin < 0 || a.slice.end > plan.parameters || a.slice.size() <= 0))
    faults.add("{} has the slice [{}, {}) of a block of {}", at(), a.slice.begin, a.slice.end, plan.parameters);
  if (sums) return;
  const int ranks = plan.size(a.peer.axis);
  const bool to_senders = sends && a.peer.root < 0 && answers;
  if (!answers && trigger.until != Trigger::forever)
    faults.add("{} ends with step {}, and the ranks that wait for its messages would wait for ever: leave until out",
               at(), trigger.until);
  if (to_senders && a.peer.senders_of.empty()) return;
  if (to_senders) {
    const int first = plan.range(program, a.peer.axis).begin;
    if (senders_to(plan, a.peer.senders_of, first).empty())
      faults.add("{}: no rank sends to '{}' of rank {}", at(), a.peer.senders_of, first);
    return;
  }
  const auto [first, last] = roots(plan, program, a);
  if (a.peer.axis.empty() || first < 0 || last >= ranks)
    return faults.add("{}: there is no rank {} along '{}', which has {}", at(), first < 0 ? first : last, a.peer.axis,
                      ranks);
  if (!sends && a.payload == OperandKind::loss) faults.add("{}: a loss cannot be received from one rank", at());
  if (!sends) return check_recv(plan, program, id, faults);
  for (const Program& other : plan.programs) {
    const CoordinateRange along = plan.range(other, a.peer.axis);
    const bool there = first < along.end && along.begin <= last;
    if (there && !takes(other, a.peer.channel))
      faults.add("{}: program {} takes no messages on '{}'", at(), other.name, a.peer.channel);
  }
}

/// A phase must take the operands that are sent to it. Gradients must be taken, then used by one update, then answered.
void check_server_phase(const Plan& plan, const Program& program, const ProgramPhase& phase, int root,
                        Diagnostics& faults) {
  const auto index = &phase - program.phases.data();
  const auto name = fmt::format("program {}: phase '{}'", program.name, phase.name);
  const Action *take = nullptr, *update = nullptr, *answer = nullptr, *passed_on = nullptr, *early = nullptr;
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[static_cast<std::size_t>(id)];
    if (a.phase != index) continue;
    if (sums_messages(a)) {
      if (take) faults.add("{} takes its messages twice", name);
      take = &a;
    }
    if (a.kind == ActionKind::update) {
      const bool fits = take && take->payload == OperandKind::gradients && take->slice == a.slice && !update && !answer;
      if (!fits)
        faults.add("{} is not the only update, after the action that takes its gradients and before any answer",
                   place(program, id));
      update = &a;
    }
    if (sends_to_channel(a)) (a.payload == OperandKind::gradients && take ? passed_on : answer) = &a;
    if (sends_to_channel(a) && !take) early = &a;
  }
  if (take && early) faults.add("{} sends before it has taken its messages: {}", name, to_string(*early));
  if (take && take->payload == OperandKind::gradients && !update && !passed_on)
    faults.add("{} takes gradients that no update uses", name);
  const bool alike = plan.consistency_along(axis_of(plan, phase.trigger.channel)) == Consistency{};
  if (alike && take && take->payload == OperandKind::gradients && find_argument(*take, "scale").value_or(1) != 1)
    faults.add(
        "{} multiplies gradients by {}, but for equal weights on all ranks they are summed as they are: leave the "
        "scale out, or set the axis's consistency",
        name, find_argument(*take, "scale").value_or(1));
  const auto senders = std::ssize(senders_to(plan, phase.trigger.channel, root));
  const bool of_all = phase.trigger.count == 0 || phase.trigger.count == senders;
  if (alike && (update || passed_on) && (!of_all || (update && !answer)) && senders > 1)
    faults.add(
        "{} answers before all ranks' gradients are in the weights, so ranks get different weights: set the axis's "
        "consistency",
        name);
  for (const Program& sender : plan.programs)
    for (ActionId id = 0; id < std::ssize(sender.actions); ++id) {
      const Action& a = sender.actions[static_cast<std::size_t>(id)];
      const auto [first, last] = roots(plan, sender, a);
      const bool comes = a.peer.root < 0 || (first <= root && root <= last);
      if (take && sends_to_channel(a) && a.peer.channel == phase.trigger.channel && comes && !same_operand(a, *take))
        faults.add("{} is taken as another operand: {}", place(sender, id), to_string(*take));
    }
}

/// A server may send workers something (tickets) that they answer. Then the ranks whose messages end the server's step
/// must send these messages after they have received; else the step could end before the server has sent everything.
void check_dealt(const Plan& plan, const Program& server, Diagnostics& faults) {
  const auto last = std::ranges::find(server.phases, true, &ProgramPhase::last);
  const auto deals = [](const Action& a) { return sends_to_channel(a) && !a.peer.senders_of.empty(); };
  if (last == server.phases.end() || std::ranges::none_of(server.actions, deals)) return;
  for (const Program& program : plan.programs) {
    if (program.serves()) continue;
    const HappensBefore order(program);
    for (ActionId send = 0; send < std::ssize(program.actions); ++send) {
      const Action& a = program.actions[static_cast<std::size_t>(send)];
      if (!sends_to_channel(a) || a.peer.channel != last->trigger.channel) continue;
      for (ActionId recv = 0; recv < std::ssize(program.actions); ++recv) {
        const Action& b = program.actions[static_cast<std::size_t>(recv)];
        if (waits_on_channel(b) && a.peer.root == b.peer.root && !order(recv, send))
          faults.add(
              "{} may end a step of program {} before that program has sent what {} waits for: wait for the recv first",
              place(program, send), server.name, place(program, recv));
      }
    }
  }
}

/// A rank that gets weights as an answer continues: no further than the axis's consistency allows.
void check_bound(const Plan& plan, const Program& program, const ProgramPhase& phase, int senders,
                 Diagnostics& faults) {
  const Trigger& t = phase.trigger;
  const Consistency promised = plan.consistency_along(axis_of(plan, t.channel));
  const bool answers = std::ranges::any_of(program.actions, [&](const Action& a) {
    return program.trigger(a) == t && sends_to_channel(a) && a.payload == OperandKind::weights && a.peer.root < 0;
  });
  if (promised.kind != Consistency::Kind::stale || promised.bound == Consistency::unbounded || !answers) return;
  const bool of_all = (t.count == 0 || t.count == senders) && t.guard.empty();
  if (!of_all && t.guard.empty())
    faults.add("program {}: phase '{}' lets ranks get any number of steps ahead, but the plan promises {}",
               program.name, phase.name, to_string(promised));
  if (t.staleness > promised.bound)
    faults.add("program {}: phase '{}' lets ranks get {} steps ahead, but the plan promises {}", program.name,
               phase.name, t.staleness, to_string(promised));
}

void check_phase(const Plan& plan, const Program& program, const ProgramPhase& phase, Diagnostics& faults) {
  const Trigger& t = phase.trigger;
  const auto name = fmt::format("program {}: phase '{}'", program.name, phase.name);
  const std::string axis = axis_of(plan, t.channel);
  if (axis.empty()) return faults.add("{} waits for messages on '{}', to which no rank sends", name, t.channel);
  const int root = plan.range(program, axis).begin;
  const auto senders = senders_to(plan, t.channel, root);
  if (t.count < 0 || t.count > std::ssize(senders))
    faults.add("{} waits for messages of {} different ranks on '{}', to which {} ranks send", name, t.count, t.channel,
               senders.size());
  const auto all = std::ssize(senders);
  const auto on_channel = [&](bool late) {
    return std::ranges::count_if(program.phases, [&](const ProgramPhase& p) {
      return p.trigger.channel == t.channel && p.trigger.late == late;
    });
  };
  const bool has_late = on_channel(true) > 0;
  if (t.count > 1 && t.count < all && !has_late)
    faults.add("{} takes {} messages of {} ranks: the others would wait for ever at the end; use 1, or 0 for all", name,
               t.count, all);
  if (has_late && (on_channel(true) != 1 || on_channel(false) != 1 || !t.guard.empty() ||
                   (t.late ? t.count != 1 : t.count < 1 || t.count >= all)))
    faults.add(
        "{}: late messages are taken one at a time, by one phase, after another that takes fewer messages than "
        "the {} ranks of '{}' send, both without a guard",
        name, all, t.channel);
  check_server_phase(plan, program, phase, root, faults);
  check_bound(plan, program, phase, static_cast<int>(all), faults);
  if (t.guard.empty()) return;
  const bool taken =
      std::ranges::any_of(program.phases, [&](const ProgramPhase& p) { return p.trigger.channel == t.guard; });
  if (t.staleness < 0) faults.add("{} has the staleness -{}: expected at least 0", name, -t.staleness);
  if (!taken || !std::ranges::includes(senders_to(plan, t.guard, root), senders))
    faults.add("{} can never start: it waits for every rank's messages on '{}', {}", name, t.guard,
               taken ? "to which not all of its senders send" : "which no phase of the program takes");
}

}  // namespace

void check_channels(const Plan& plan, Diagnostics& faults) {
  const std::size_t before = faults.size();
  std::set<std::string> axes;
  for (const Program& program : plan.programs) {
    for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
      check_action(plan, program, id, faults);
      const Action& a = program.actions[static_cast<std::size_t>(id)];
      if (is_channel(a)) axes.insert(a.peer.axis);
    }
    for (const ProgramPhase& phase : program.phases)
      if (!phase.trigger.channel.empty()) check_phase(plan, program, phase, faults);
    if (!program.serves()) continue;
    check_dealt(plan, program, faults);
    if (std::ranges::count(program.phases, true, &ProgramPhase::last) != 1)
      faults.add(
          "program {}: messages start its phases, so one of them must be the last of a step (ProgramPhase::last)",
          program.name);
    if (std::ranges::none_of(program.actions, [&](const Action& a) {
          return sums_messages(a) && a.payload == OperandKind::loss &&
                 program.phases[static_cast<std::size_t>(a.phase)].last;
        }))
      faults.add("program {}: its last phase takes no loss, which a step returns on all ranks", program.name);
  }
  const auto hand_out = std::ranges::count_if(plan.programs, hands_out_tickets);
  if (hand_out != (plan.tickets > 0))
    faults.add(
        "{} programs hand out tickets, and a batch has {} tickets: expected one program if there are tickets, else "
        "none",
        hand_out, plan.tickets);
  if (faults.size() > before) return;
  if (axes.size() > 1) return faults.add("messages to channels go along {}: use one axis", fmt::join(axes, " and "));
  for (const std::string& channel : channels_of(plan))
    if (std::ranges::none_of(plan.programs, [&](const Program& p) { return takes(p, channel); }))
      faults.add("messages on '{}' arrive, but no phase takes them", channel);
  for (const std::string& axis : axes)
    if (faults.size() == before && plan.size(axis) <= most_ranks) play_channels(plan, axis, faults);
}

}  // namespace trireme
