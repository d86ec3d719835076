// ZeRO: reductions become reduce-scatters, each rank updates its shards, and what the others hold is gathered again.
#include <ranges>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/liveness.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

/// Neighbouring parts whose weights are there together: each part; in a pipeline, each segment of a stage.
std::vector<Segment> units_of(const Plan& plan, const Program& program) {
  if (plan.programs.size() > 1) return find_segments(program);
  std::vector<Segment> units;
  for (int p = 0; p < static_cast<int>(plan.parts.size()); ++p) units.push_back({p, p + 1});
  return units;
}
Slice weights_of(const Plan& plan, const Segment& unit) {
  return {plan.parts[unit.first].slice.begin, plan.parts[unit.end - 1].slice.end};
}

/// One reduction per unit, where its last backward ends, instead of those by buckets.
Program reduce_by_units(const Plan& plan, const Program& program, const std::string& axis) {
  const auto units = units_of(plan, program);
  std::vector<Slice> slices;  // last first
  for (const Segment& unit : units | std::views::reverse) slices.push_back(weights_of(plan, unit));
  std::erase_if(slices, [](const Slice& s) { return s.size() == 0; });
  return reduce_slices(plan, program, slices, axis, program.actions[reductions_of(program)[0]].on_ready);
}

/// Stage 2: a bucket's gradients go when the next bucket is on its way; in a pipeline, whose stages run as a whole, all
/// after the last backward.
Program drop_gradients(const Program& program, const std::string& axis, bool staged) {
  const auto ids = reductions_of(program);
  std::vector<std::pair<Slice, ActionId>> waiting;
  auto drop = [&](Rebuild& rebuild, std::size_t but) {
    for (; waiting.size() > but; waiting.erase(waiting.begin()))
      rebuild.add(on_slice(ActionKind::drop_gradients, Stream::compute, waiting[0].first, axis, {waiting[0].second}));
  };
  return rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    if (a.kind == ActionKind::update) drop(rebuild, 0);
    const ActionId now = rebuild.keep(id);
    if (!is_reduction(a)) return;
    waiting.emplace_back(a.slice, now);
    if (!staged) drop(rebuild, 1);
  });
}

/// Stage 3: weights come before a unit's forward and backward, and go behind them.
Program gather_weights(const Plan& plan, const Program& program, const std::string& axis) {
  const auto units = units_of(plan, program);
  std::vector<ActionId> dropped(units.size(), -1);
  return rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    const bool uses = a.kind != ActionKind::backward_weight && is_pass(a);
    std::size_t u = 0;
    while (u < units.size() && !(units[u].first <= a.part && a.part < units[u].end)) ++u;
    if (!uses || u == units.size() || weights_of(plan, units[u]).size() == 0) {
      rebuild.keep(id);
      return;
    }
    const Slice slice = weights_of(plan, units[u]);
    const bool forward = a.kind == ActionKind::forward;
    ActionId gathered = -1;
    if (a.part == (forward ? units[u].first : units[u].end - 1))
      gathered = rebuild.add(on_slice(ActionKind::all_gather, Stream::comm, slice, axis, {dropped[u]}));
    const ActionId now = rebuild.keep(id, gathered);
    if (a.part == (forward ? units[u].end - 1 : units[u].first))
      dropped[u] = rebuild.add(on_slice(ActionKind::drop_values, Stream::compute, slice, axis, {now}));
  });
}

Plan rewrite(Plan plan, int stage) {
  plan = with_reductions(std::move(plan), "zero");
  for (Program& program : plan.programs) {
    const auto ids = reductions_of(program);
    if (ids.empty()) continue;
    const std::string axis = program.actions[ids[0]].peer.axis;
    if (stage == 3) program = gather_weights(plan, reduce_by_units(plan, program, axis), axis);
    const auto give = stage < 3 ? std::optional(ActionKind::all_gather) : std::nullopt;
    program = update_by_bucket(program, ActionKind::reduce_scatter, give);
    if (stage >= 2) program = drop_gradients(program, axis, plan.programs.size() > 1);
  }
  return plan;
}

}  // namespace

Strategy zero(int stage) {
  check(stage >= 1 && stage <= 3, "zero", "stage {}: wants 1 (optimizer state), 2 (and gradients) or 3 (and weights)",
        stage);
  return {fmt::format("zero({})", stage), Claim::exact, [stage](Plan plan) { return rewrite(std::move(plan), stage); }};
}

}  // namespace trireme
