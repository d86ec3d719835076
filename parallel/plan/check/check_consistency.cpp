// The part of check(plan) for Plan::consistency: weights that ranks of an axis may hold with different values after a
// step. Also checks custom kinds of actions, codecs and states.
#include "parallel/plan/check/diagnostics.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/operands.h"
#include "parallel/plan/peers.h"
#include "parallel/plan/ties.h"

namespace trireme {
namespace {

using Kind = Consistency::Kind;

/// Whether the action comes before each update of the slice in the list.
bool before_updates(const Program& program, const Action& action, const Slice& slice) {
  for (const Action& a : program.actions) {
    if (&a == &action) return true;
    if (a.kind == ActionKind::update && a.slice.overlaps(slice)) return false;
  }
  return false;
}

/// The weights that a program updates must be made equal (or mixed) along the axis, at least as often as the plan
/// promises.
void check_mixed(const Plan& plan, std::size_t r, const std::string& axis, const Consistency& promised,
                 Diagnostics& faults) {
  const Program& program = plan.programs[r];
  const auto operands = accesses(plan, program);
  std::vector<Slice> mixed;
  std::int64_t alike = 0;  // number of first steps in which gradients are averaged in every step
  for (std::size_t id = 0; id < operands.size(); ++id) {
    const Action& a = program.actions[id];
    const Trigger& t = program.trigger(a);
    if (a.peer.axis != axis || t.every != 1 || t.from != 0 || t.on_call || !t.channel.empty()) continue;
    for (const Operand& o : operands[id]) {
      if (!o.written || o.kind != OperandKind::gradients) continue;
      if (t.until != Trigger::forever)
        alike = std::max(alike, t.until);
      else if (promised.kind == Kind::periodic && before_updates(program, a, o.slice))
        mixed.push_back(o.slice);  // ranks with equal weights and equal gradients keep equal weights
    }
  }
  for (std::size_t id = 0; id < operands.size(); ++id) {
    const Trigger& t = program.trigger(program.actions[id]);
    const bool often =
        promised.kind == Kind::gossip || (t.every <= promised.bound && t.first() - alike < promised.bound);
    if (program.actions[id].peer.axis != axis || !often || t.until != Trigger::forever) continue;
    for (const Operand& o : operands[id])
      if (o.written && o.kind == OperandKind::weights) mixed.push_back(o.slice);
  }
  mixed = detail::joined(std::move(mixed));
  for (const Slice& updated : plan.updated(r)) {
    const bool covered =
        std::ranges::any_of(mixed, [&](const Slice& m) { return m.begin <= updated.begin && updated.end <= m.end; });
    if (!covered)
      faults.add(
          "program {}: weights [{}, {}) are updated by each rank along '{}' separately, and no action makes them {} as "
          "{} promises",
          program.name, updated.begin, updated.end, axis,
          promised.kind == Kind::gossip ? "mix" : fmt::format("alike every {} steps", promised.bound),
          to_string(promised));
  }
}

/// Passes, messages, reductions and updates must run in every step.
void check_trigger(const Program& program, ActionId id, Diagnostics& faults) {
  const Action& a = program.actions[id];
  const bool always = is_pass(a) || is_message(a) || is_reduction(a) || a.on_ready || a.kind == ActionKind::update ||
                      a.kind == ActionKind::free || is_tied_sum(a) ||
                      (a.kind == ActionKind::agree && !agrees_on_flags(a));
  if (always && program.trigger(a) != Trigger{} && program.trigger(a).channel.empty())
    faults.add("{} is of a phase that runs {}, but it must run in every step", place(program, id),
               to_string(program.trigger(a)));
  if (a.on_ready && !is_reduction(a))
    faults.add("{} is on_ready, but only reductions can start during a backward", place(program, id));
  if (a.kind->seconds && !is_pass(a) && (a.stream == Stream::comm || a.kind->is_collective))
    faults.add("{} has ActionRow::seconds, but only computations on the compute stream can have it",
               place(program, id));
}

void check_own_kinds(const Plan& plan, const Program& program, ActionId id, Diagnostics& faults) {
  const Action& a = program.actions[id];
  try {
    if (!a.peer.pairs.empty()) (void)peers_at(a.peer, 0, 2, 0);
  } catch (const Error& e) { return faults.add("{}: {}", place(program, id), e.what()); }
  if (a.kind->fault)
    if (const std::string text = a.kind->fault(plan, program, id); !text.empty())
      faults.add("{}: {}", place(program, id), text);
  if (a.codec && (!is_reduction(a) || (a.kind == ActionKind::reduce_scatter && !a.codec->is_elementwise)))
    faults.add("{}: the codec {} can encode {} of gradients only: leave the codec of this action out",
               place(program, id), a.codec->name, a.codec->is_elementwise ? "a reduction" : "an all_reduce");
  for (const std::string& name : codec_states(a))
    if (!name.empty() && std::ranges::find(plan.state, name, &State::name) == plan.state.end())
      faults.add("{}: the codec keeps the state '{}', which the plan does not declare: use with_codec()",
                 place(program, id), name);
}

/// Each state that an action uses must be declared in Plan::state. A state that all ranks share must be written by one
/// program only.
void check_states(const Plan& plan, Diagnostics& faults) {
  struct Write {
    const Program* program;
    Operand state;
  };
  std::vector<Write> writes;
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const Program& program = plan.programs[r];
    const std::vector<Slice> copies =
        copies_in(plan, r);  // copies of tied weights, which the program changes as the owner does
    const auto operands = accesses(plan, program);
    for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
      const Action& a = program.actions[static_cast<std::size_t>(id)];
      const auto declared = [&](const Operand& o) {
        if (o.kind != OperandKind::state || o.name.empty()) return false;
        const auto at = std::ranges::find(plan.state, o.name, &State::name);
        const auto of_codec = codec_states(a);
        if (at == plan.state.end() && std::ranges::find(of_codec, o.name) == of_codec.end())
          faults.add("{} uses the state '{}', which the plan does not declare", place(program, id), o.name);
        return at != plan.state.end() && at->replicated;
      };
      for (const Operand& o : operands[static_cast<std::size_t>(id)])
        if (declared(o) && o.written && !overlaps(copies, o.slice)) writes.push_back({&program, o});
    }
  }
  for (std::size_t i = 0; i < writes.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (writes[k].program != writes[i].program && writes[k].state.overlaps(writes[i].state))
        faults.add("{}, alike on all ranks, is written by program {} and by program {}", to_string(writes[i].state),
                   writes[k].program->name, writes[i].program->name);
}

}  // namespace

void check_consistency(const Plan& plan, Diagnostics& faults) {
  for (const Program& program : plan.programs)
    for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
      check_trigger(program, id, faults);
      check_own_kinds(plan, program, id, faults);
    }
  check_states(plan, faults);
  for (const auto& [axis, promised] : plan.consistency) {
    if (promised.kind == Kind::periodic && promised.bound < 1)
      faults.add("the consistency along '{}' is {}, but its bound must be at least 1 step", axis, to_string(promised));
    const bool messages = std::ranges::any_of(plan.programs, [&](const Program& p) {
      return std::ranges::any_of(p.actions,
                                 [&](const Action& a) { return !a.peer.channel.empty() && a.peer.axis == axis; });
    });
    if (axis == plan.stage_axis && plan.has_stages()) continue;  // left to check_versions()
    if (promised.kind == Kind::stale && (promised.bound < 0 || !messages))
      faults.add(
          "the consistency along '{}' is {}, which needs a bound of at least 0 and messages to channels along the axis",
          axis, to_string(promised));
    const bool own_time = std::ranges::any_of(plan.programs, [&](const Program& p) {
      return std::ranges::any_of(p.actions, [&](const Action& a) { return a.kind->flush && a.peer.axis == axis; });
    });
    if (promised.kind == Kind::gossip && own_time != (promised.bound == Consistency::unbounded))
      faults.add(
          "the consistency along '{}' is {}, but ranks {} by asynchronous messages (ActionRow::flush): the bound must "
          "be unbounded with such messages, and only then",
          axis, to_string(promised), own_time ? "mix" : "do not mix");
    if ((promised.kind != Kind::periodic && promised.kind != Kind::gossip) || plan.size(axis) == 1) continue;
    for (std::size_t r = 0; r < plan.programs.size(); ++r) check_mixed(plan, r, axis, promised, faults);
  }
}

}  // namespace trireme
