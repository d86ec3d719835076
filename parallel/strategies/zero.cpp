// ZeRO: reductions become reduce-scatters, each rank updates its shards, and what the others hold is gathered again.
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
  const bool overlapped = program.actions[reductions_of(program)[0]].on_ready;
  std::vector<ActionId> last(units.size(), -1);  // backward that completes the unit
  for (ActionId id = 0; id < static_cast<int>(program.actions.size()); ++id)
    for (std::size_t u = 0; u < units.size(); ++u)
      if (completes(program.actions[id]) && program.actions[id].part == units[u].first) last[u] = id;
  const ActionId end = *std::max_element(last.begin(), last.end());
  return rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    if (is_reduction(a)) return;
    const ActionId now = rebuild.keep(id);
    for (std::size_t u = units.size(); u-- > 0;) {
      const Slice slice = weights_of(plan, units[u]);
      if ((overlapped ? last[u] : end) != id || last[u] < 0 || slice.size() == 0) continue;
      Action reduce = on_slice(ActionKind::all_reduce, Stream::comm, slice, axis, {now});
      reduce.on_ready = overlapped;
      rebuild.add(std::move(reduce));
    }
  });
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
    const bool uses =
        a.kind == ActionKind::forward || a.kind == ActionKind::backward || a.kind == ActionKind::backward_input;
    std::size_t u = 0;
    while (uses && u < units.size() && !(units[u].first <= a.part && a.part < units[u].end)) ++u;
    if (!uses || u == units.size() || weights_of(plan, units[u]).size() == 0) {
      rebuild.keep(id);
      return;
    }
    const Slice slice = weights_of(plan, units[u]);
    const bool forward = a.kind == ActionKind::forward;
    ActionId gathered = -1;
    if (a.part == (forward ? units[u].first : units[u].end - 1))
      gathered = rebuild.add(on_slice(ActionKind::all_gather, Stream::comm, slice, axis,
                                      dropped[u] < 0 ? std::vector<ActionId>{} : std::vector<ActionId>{dropped[u]}));
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
    program = update_by_bucket(program, ActionKind::reduce_scatter);
    if (stage < 3) program = give_updates(program, ActionKind::all_gather);
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
