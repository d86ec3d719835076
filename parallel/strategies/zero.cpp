// ZeRO: reductions become reduce-scatters, each rank updates its shards, and what the others hold is gathered again.
#include "parallel/strategy.h"
#include "parallel/tapes.h"
#include "parallel/verbs.h"

namespace trireme {
namespace {

Action on_slice(Verb verb, Lane lane, const Slice& slice, const std::string& axis, std::vector<ActionId> after) {
  Action a{verb, lane};
  a.slice = slice, a.peer.axis = axis, a.after = std::move(after);
  return a;
}

std::vector<ActionId> reductions_of(const Role& role) {
  std::vector<ActionId> ids;
  for (ActionId id = 0; id < static_cast<int>(role.actions.size()); ++id)
    if (is_reduction(role.actions[id])) ids.push_back(id);
  return ids;
}

/// Neighbouring parts whose weights are there together: each part; in a pipeline, each stretch of a stage.
std::vector<Stretch> units_of(const Plan& plan, const Role& role) {
  const int parts = static_cast<int>(plan.parts.size());
  if (plan.roles.size() > 1) return find_stretches(role, parts);
  std::vector<Stretch> units;
  for (int p = 0; p < parts; ++p) units.push_back({p, p + 1});
  return units;
}
Slice weights_of(const Plan& plan, const Stretch& unit) {
  return {plan.parts[unit.first].slice.begin, plan.parts[unit.end - 1].slice.end};
}

/// The role with each action replaced by those that f emits for it; f(action, emit) calls emit(action), whose `after`
/// means actions emitted before (ids are those emit returns), in any order around the original.
class Rebuild {
 public:
  explicit Rebuild(const Role& role)
      : role_(role), out_{role.name, {}, role.in_flight}, moved_(role.actions.size(), -1) {}
  /// Appends an action of the old role, with one more dependency if it is not -1.
  ActionId keep(ActionId old, ActionId also = -1) {
    Action a = role_.actions[old];
    for (ActionId& id : a.after) id = moved_[id];
    std::erase(a.after, -1);  // on what is left out
    if (also >= 0) a.after.push_back(also);
    return moved_[old] = add(std::move(a));
  }
  ActionId add(Action a) {
    out_.actions.push_back(std::move(a));
    return static_cast<ActionId>(out_.actions.size()) - 1;
  }
  Role take() { return std::move(out_); }

 private:
  const Role& role_;
  Role out_;
  std::vector<ActionId> moved_;  // new ids by old
};

/// One reduction per unit, where its last backward ends, instead of those by buckets.
Role reduce_by_units(const Plan& plan, const Role& role, const std::string& axis) {
  const auto units = units_of(plan, role);
  const bool overlapped = role.actions[reductions_of(role)[0]].on_ready;
  std::vector<ActionId> last(units.size(), -1);  // backward that completes the unit
  for (ActionId id = 0; id < static_cast<int>(role.actions.size()); ++id)
    for (std::size_t u = 0; u < units.size(); ++u)
      if (completes(role.actions[id]) && role.actions[id].part == units[u].first) last[u] = id;
  const ActionId end = *std::max_element(last.begin(), last.end());
  Rebuild rebuild(role);
  std::vector<std::pair<Slice, ActionId>> reduced;
  for (ActionId id = 0; id < static_cast<int>(role.actions.size()); ++id) {
    const Action& a = role.actions[id];
    if (is_reduction(a)) continue;
    const ActionId now = rebuild.keep(id);
    for (std::size_t u = units.size(); u-- > 0;) {
      const Slice slice = weights_of(plan, units[u]);
      if ((overlapped ? last[u] : end) != id || last[u] < 0 || slice.size() == 0) continue;
      Action reduce = on_slice(Verb::all_reduce, Lane::comm, slice, axis, {now});
      reduce.on_ready = overlapped;
      rebuild.add(std::move(reduce));
    }
  }
  return rebuild.take();
}

/// Stages 1 and up: reduce to shards, update those, gather the values (unless they are gathered when used).
Role shard_updates(const Role& role, const std::string& axis, bool gather) {
  Rebuild rebuild(role);
  std::vector<std::pair<Slice, ActionId>> reduced;
  std::vector<ActionId> all;
  for (ActionId id = 0; id < static_cast<int>(role.actions.size()); ++id) {
    if (role.actions[id].verb == Verb::update) continue;
    const ActionId now = rebuild.keep(id);
    if (!is_reduction(role.actions[id])) continue;
    reduced.emplace_back(role.actions[id].slice, now);
    all.push_back(now);
  }
  Role out = rebuild.take();
  for (ActionId id : all) out.actions[id].verb = Verb::reduce_scatter;
  // The first update waits for all, so that the gradient's norm is known.
  for (auto& [slice, id] : reduced) {
    const bool first = id == all[0];
    out.actions.push_back(on_slice(Verb::update, Lane::compute, slice, axis, first ? all : std::vector<ActionId>{id}));
    const auto update = static_cast<ActionId>(out.actions.size()) - 1;
    if (gather) out.actions.push_back(on_slice(Verb::all_gather, Lane::comm, slice, axis, {update}));
  }
  return out;
}

/// Stage 2: a bucket's gradients go when the next bucket is on its way; in a pipeline, whose stages run as a whole, all
/// after the last backward.
Role drop_gradients(const Role& role, const std::string& axis, bool staged) {
  const auto ids = reductions_of(role);
  Rebuild rebuild(role);
  std::vector<std::pair<Slice, ActionId>> waiting;
  auto drop = [&](std::size_t but) {
    for (; waiting.size() > but; waiting.erase(waiting.begin()))
      rebuild.add(on_slice(Verb::drop_gradients, Lane::compute, waiting[0].first, axis, {waiting[0].second}));
  };
  for (ActionId id = 0; id < static_cast<int>(role.actions.size()); ++id) {
    const Action& a = role.actions[id];
    if (a.verb == Verb::update) drop(0);
    const ActionId now = rebuild.keep(id);
    if (!is_reduction(a)) continue;
    waiting.emplace_back(a.slice, now);
    if (!staged) drop(1);
  }
  return rebuild.take();
}

/// Stage 3: weights come before a unit's forward and backward, and go behind them.
Role gather_weights(const Plan& plan, const Role& role, const std::string& axis) {
  const auto units = units_of(plan, role);
  Rebuild rebuild(role);
  std::vector<ActionId> dropped(units.size(), -1);
  for (ActionId id = 0; id < static_cast<int>(role.actions.size()); ++id) {
    const Action& a = role.actions[id];
    const bool uses = a.verb == Verb::forward || a.verb == Verb::backward || a.verb == Verb::backward_input;
    std::size_t u = 0;
    while (uses && u < units.size() && !(units[u].first <= a.part && a.part < units[u].end)) ++u;
    if (!uses || u == units.size() || weights_of(plan, units[u]).size() == 0) {
      rebuild.keep(id);
      continue;
    }
    const Slice slice = weights_of(plan, units[u]);
    const bool forward = a.verb == Verb::forward;
    ActionId gathered = -1;
    if (a.part == (forward ? units[u].first : units[u].end - 1))
      gathered = rebuild.add(on_slice(Verb::all_gather, Lane::comm, slice, axis,
                                      dropped[u] < 0 ? std::vector<ActionId>{} : std::vector<ActionId>{dropped[u]}));
    const ActionId now = rebuild.keep(id, gathered);
    if (a.part == (forward ? units[u].end - 1 : units[u].first))
      dropped[u] = rebuild.add(on_slice(Verb::drop_values, Lane::compute, slice, axis, {now}));
  }
  return rebuild.take();
}

Plan rewrite(Plan plan, int stage) {
  bool reduces = false;
  for (const Role& role : plan.roles) reduces = reduces || !reductions_of(role).empty();
  if (!reduces) plan = data_parallel()(std::move(plan));
  for (Role& role : plan.roles) {
    const auto ids = reductions_of(role);
    if (ids.empty()) continue;
    for (ActionId id : ids)
      check(role.actions[id].verb == Verb::all_reduce, "zero",
            "the plan's gradients are in shards already: use it once");
    const std::string axis = role.actions[ids[0]].peer.axis;
    if (stage == 3) role = gather_weights(plan, reduce_by_units(plan, role, axis), axis);
    role = shard_updates(role, axis, stage < 3);
    if (stage >= 2) role = drop_gradients(role, axis, plan.roles.size() > 1);
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
