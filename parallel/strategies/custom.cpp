#include "parallel/strategies/custom.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/ties.h"
#include "parallel/strategies/mixing.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

/// The options as text: "every=4, lr=0.7, axis=data".
std::string options_of(const CustomAction& c) {
  std::string text = fmt::format("every={}", c.every);
  if (c.from > 0) text += fmt::format(", from={}", c.from);
  if (c.until != Trigger::forever) text += fmt::format(", until={}", c.until);
  for (const auto& [name, value] : c.arguments) text += fmt::format(", {}={}", name, value);
  return text + ", axis=" + c.axis;
}

Trigger trigger_of(const CustomAction& c) {
  return {.every = c.every, .offset = (c.from + c.every - 1) % c.every, .from = c.from, .until = c.until};
}

void check_declared(const CustomAction& c) {
  check(!c.name.empty() && (c.run || c.row.start), "strategy",
        "a custom action needs a name and a function, '{}' lacks one: set .name and .run", c.name);
  check(c.every >= 1 && c.from >= 0 && c.until > c.from, c.name,
        "every={}, from={}, until={}: expected every of at least 1, from of at least 0, and until after from", c.every,
        c.from, c.until);
  for (const SentVector& s : c.sends)
    check((s.kind == CallKind::send) == !c.peer.pairs.empty(), c.name,
          "sends {} with the pairs '{}': messages need .peer, and other calls must not have it; use .peer = {{.pairs = "
          "\"ring\"}} or the like",
          name_of(s.kind), c.peer.pairs);
}

/// The action without a slice. of: the kind of data that it writes in addition to its states.
Action action_of(const CustomAction& c, OperandKind of) {
  check_declared(c);
  ActionRow row = c.row;
  if (row.name.empty()) row.name = c.name;
  row.options = options_of(c);
  if (c.row.letter == ActionRow{}.letter) row.letter = row.name.front();
  row.is_collective = !c.axis.empty();
  std::vector<std::string> states;
  for (const auto* list : {&c.remembers, &c.keeps})
    for (const State& s : *list) states.push_back(s.name);
  if (!row.access)
    row.access = [of, states](const Plan&, const Program&, const Liveness&, const Action& a) {
      std::vector<Operand> all{{.kind = of, .slice = a.slice, .written = true}};
      for (const std::string& name : states)
        all.push_back({.kind = OperandKind::state, .slice = a.slice, .name = name, .written = true});
      return all;
    };
  if (!row.calls && !c.sends.empty())
    row.calls = [sends = c.sends](const Action& a, int ranks, Index element) {
      std::vector<PlannedCall> all;
      for (const SentVector& s : sends) {
        const Index bytes = a.slice.size() * (s.wire ? size_of(*s.wire) : element);
        const int count = s.kind == CallKind::send ? sends_of(peers_at(a.peer, 0, ranks, 0), 0) : 1;
        all.insert(all.end(), static_cast<std::size_t>(count),
                   {s.kind, s.kind == CallKind::all_gather ? bytes * ranks : bytes});
      }
      return all;
    };
  if (!row.start)
    row.start = [run = c.run](ActionContext& now) {
      run(now);
      return Work();
    };
  Action a{.kind = std::make_shared<const ActionRow>(std::move(row))};
  a.peer = c.peer;
  a.peer.axis = c.axis;
  a.arguments = c.arguments;
  return a;
}

std::string phase_of(const CustomAction& c) {
  return !c.phase.empty() ? c.phase : c.axis.empty() ? c.name : c.name + " over " + c.axis;
}

void declare(Plan& plan, const std::vector<State>& states) {
  for (const State& s : states) {
    check(std::ranges::find(plan.state, s.name, &State::name) == plan.state.end(), "strategy",
          "another action of the plan keeps a state '{}': use another name", s.name);
    plan.state.push_back(s);
  }
}

/// The reductions that complete the gradients of a slice, and the sum over tied copies.
std::vector<ActionId> completed_by(const Program& program, const Slice& slice) {
  std::vector<ActionId> all;
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[static_cast<std::size_t>(id)];
    if ((is_reduction(a) || is_tied_sum(a)) && a.slice.overlaps(slice)) all.push_back(id);
  }
  return all;
}

/// Throws Error unless every program has the whole gradient of its weights before its updates.
void check_whole(const Plan& plan, const std::string& strategy) {
  refuse_asynchronous(plan, strategy);
  check(plan.programs.size() == 1 || ties_of(plan).empty(), strategy,
        "several stages have a part of the gradients of weights that they share: cut the pipeline elsewhere");
  for (const Program& program : plan.programs) {
    check(!program.serves(), strategy, "parameter_server sums the gradients: leave one of the two out");
    for (const Action& a : program.actions)
      check(a.kind != ActionKind::reduce_scatter, strategy,
            "with zero each rank has a shard of the sum of gradients: use data_parallel instead of zero");
  }
}
/// The same check for strategies that are applied later.
std::string shard_fault(const Plan&, const Program& program, ActionId id) {
  const Action& action = program.actions[static_cast<std::size_t>(id)];
  const bool shards = std::ranges::any_of(program.actions, [&](const Action& a) {
    return a.kind == ActionKind::reduce_scatter && a.slice.overlaps(action.slice);
  });
  return shards ? "each rank has a shard of the sum of gradients: use data_parallel instead of zero" : "";
}

}  // namespace

void act_on_weights(Plan& plan, const CustomAction& c) {
  mix_weights(plan, action_of(c, OperandKind::weights), c.axis, phase_of(c), trigger_of(c));
  for (const State& s : c.remembers) remember_weights(plan, s.name, c.from);
  declare(plan, c.remembers);
  declare(plan, c.keeps);
}

void act_on_gradients(Plan& plan, const CustomAction& c) {
  check(c.remembers.empty(), c.name, "remembers weights, which an action on gradients does not read: use keeps");
  const Action like = action_of(c, OperandKind::gradients);
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    for (const Slice& slice : plan.updated(r)) {
      Program& program = plan.programs[r];
      Action a = like;
      a.slice = slice;
      a.phase = add_phase(program, phase_of(c), trigger_of(c));
      const std::vector<ActionId> sums = tied_sums(program, slice);  // copies are summed last
      ActionId next = sums.empty() ? 0 : sums[0];
      while (sums.empty() && program.actions[static_cast<std::size_t>(next)].kind != ActionKind::update) ++next;
      if (!sums.empty())
        a.after = program.actions[static_cast<std::size_t>(next)].after;
      else
        a.after = completed_by(program, slice);
      insert(program, next, std::move(a));
      if (!sums.empty()) program.actions[static_cast<std::size_t>(next) + 1].after.push_back(next);
    }
  declare(plan, c.keeps);
}

Plan encode_gradients(Plan plan, const std::string& strategy, const Codec& codec,
                      const std::vector<std::pair<std::string, double>>& arguments) {
  refuse_asynchronous(plan, strategy);
  const bool reduces = std::ranges::any_of(
      plan.programs, [](const Program& program) { return std::ranges::any_of(program.actions, is_reduction); });
  if (!reduces) plan = with_reductions(std::move(plan), strategy);
  // Ranks that have the same weights must send the same numbers of them, whatever parts of other weights they have.
  std::vector<Slice> parts;
  for (const PartInfo& part : plan.parts)
    for (const auto& [axes, slices] : part.divided) parts.insert(parts.end(), slices.begin(), slices.end());
  std::ranges::sort(parts, {}, &Slice::begin);
  for (Program& program : plan.programs)
    if (!codec.is_elementwise) program = cut_reductions(plan, program, parts);
  return with_codec(std::move(plan), codec, arguments);
}

Strategy periodically(CustomAction c) {
  check_declared(c);
  check(!c.axis.empty(), c.name, "axis is empty, but weights are combined over an axis of the mesh: name one");
  const auto rewrite = [c](Plan plan) {
    check_apart(plan, c.axis, c.name);
    act_on_weights(plan, c);
    plan.consistency[c.axis] = {c.alike ? Consistency::Kind::periodic : Consistency::Kind::gossip, c.every};
    return plan;
  };
  return apart({c.name, c.claim, rewrite, options_of(c), StrategyOrder::averages});
}

Strategy on_gradients(CustomAction c) {
  check_declared(c);
  if (!c.row.fault) c.row.fault = shard_fault;
  if (c.sends.empty()) {
    c.axis.clear();
    const auto rewrite = [c](Plan plan) {
      check_whole(plan, c.name);
      act_on_gradients(plan, c);
      return plan;
    };
    return {c.name, c.claim, rewrite, options_of(c), StrategyOrder::averages};
  }
  check(c.every == 1 && c.from == 0 && c.until == Trigger::forever && c.alike, c.name,
        "it replaces the sum of gradients, which each step needs: leave every, from, until and alike out");
  const auto rewrite = [c](Plan plan) {
    check_whole(plan, c.name);
    check_apart(plan, c.axis, c.name);
    act_on_gradients(plan, c);
    plan.consistency[c.axis] = {Consistency::Kind::periodic, 1};
    return plan;
  };
  return apart({c.name, c.claim, rewrite, options_of(c), StrategyOrder::averages});
}

Strategy on_gradients(const Codec& codec, const std::vector<std::pair<std::string, double>>& arguments) {
  std::string text;
  for (const auto& [name, value] : arguments) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value);
  const auto rewrite = [&codec, arguments](Plan plan) {
    return encode_gradients(std::move(plan), std::string(codec.name), codec, arguments);
  };
  return {std::string(codec.name), Claim::statistical, rewrite, text, StrategyOrder::codecs};
}

}  // namespace trireme
