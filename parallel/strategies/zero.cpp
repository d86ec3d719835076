// ZeRO: reductions become reduce-scatters, each rank updates its shards, and the next step gathers other ranks' shards
// before the passes that use them. Weights that the ranks divide already have no reduction along their axis, and stay
// as they are.
#include <algorithm>
#include <map>
#include <ranges>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/gather_layout.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/ties.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

/// Consecutive parts whose weights are gathered together: one part; in a pipeline, a segment of a stage.
struct Unit {
  Segment parts;
  /// Slices that are reduced, updated and gathered at once, in order. Weights that parts share are separate slices, and
  /// so are weights that are summed over other axes.
  std::vector<Bucket> weights;
};
/// The parts of each unit.
std::vector<Segment> segments_of(const Plan& plan, const Program& program) {
  if (plan.programs.size() > 1) return Liveness(program).segments;
  std::vector<Segment> segments;
  for (int p = 0; p < std::ssize(plan.parts); ++p) segments.push_back({p, p + 1});
  return segments;
}
std::vector<Unit> units_of(const Plan& plan, const Program& program, const std::string& axis) {
  const std::vector<Slice> tied = tied_slices(plan);
  const Index all = std::max<Index>(1, plan.parameters);
  const DataParallelOptions uncut{.axis = axis, .first_bucket = all, .bucket = all};
  std::vector<Unit> units;
  for (const Segment& s : segments_of(plan, program)) {
    std::vector<Slice> slices = cut_at({plan.parts[s.first].slice.begin, plan.parts[s.end - 1].slice.end}, tied);
    for (int p = s.first; p < s.end; ++p)
      for (const Slice& t : plan.parts[p].tied)
        if (std::ranges::find(slices, t) == slices.end()) slices.push_back(t);
    Unit& unit = units.emplace_back(Unit{s, {}});
    for (const Slice& slice : slices)
      for (Bucket& bucket : buckets_of(plan, slice, uncut) | std::views::reverse)
        unit.weights.push_back(std::move(bucket));
  }
  return units;
}

/// Replaces reductions by bucket by one reduction per unit, at the end of its last backward.
Program reduce_by_units(const Plan& plan, const Program& program, const std::string& axis) {
  std::vector<Bucket> buckets;  // last first; a slice of several units belongs to the first one, whose backward is the
                                // last
  for (const Unit& unit : units_of(plan, program, axis) | std::views::reverse)
    for (const Bucket& bucket : unit.weights | std::views::reverse) {
      std::erase_if(buckets, [&](const Bucket& b) { return b.slice == bucket.slice; });
      buckets.push_back(bucket);
    }
  return reduce_slices(plan, program, buckets, program.actions[reductions_of(program)[0]].on_ready);
}

/// Stage 2: drops a bucket's gradients once the next bucket has started. In a pipeline, whose stages run as a whole,
/// and for the last bucket, drops them before the bucket's update.
Program drop_gradients(const Program& program, bool staged) {
  std::vector<std::pair<Bucket, ActionId>> waiting;
  const auto drop = [&](Rebuild& rebuild, auto&& is_due) {
    std::erase_if(waiting, [&](const auto& w) {
      if (!is_due(w)) return false;
      rebuild.add(
          on_slice(ActionKind::drop, Stream::compute, w.first.slice, w.first.axis, {w.second}, OperandKind::gradients));
      return true;
    });
  };
  return rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    if (a.kind == ActionKind::update) drop(rebuild, [&](const auto& w) { return w.first.slice.overlaps(a.slice); });
    const ActionId now = rebuild.keep(id);
    for (auto& [bucket, after] : waiting)
      if (is_tied_sum(a) && a.slice.overlaps(bucket.slice)) after = now;
    if (!is_reduction(a)) return;
    if (!staged) drop(rebuild, [](const auto&) { return true; });
    waiting.emplace_back(Bucket{a.slice, a.peer.axis}, now);
  });
}

/// Consecutive passes of one unit: a forward, or a backward.
struct Use {
  std::size_t unit = 0;
  ActionId first = -1, last = -1;
};
std::vector<Use> uses_of(const Program& program, const std::vector<Unit>& units) {
  std::vector<Use> uses;
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[id];
    if (a.kind == ActionKind::backward_weight || !is_pass(a)) continue;
    const auto at =
        std::ranges::find_if(units, [&](const Unit& u) { return u.parts.first <= a.part && a.part < u.parts.end; });
    if (at == units.end() || at->weights.empty()) continue;
    const auto u = static_cast<std::size_t>(at - units.begin());
    if (a.part == (a.kind == ActionKind::forward ? at->parts.first : at->parts.end - 1)) uses.push_back({u, id, id});
    uses.back().last = id;
  }
  return uses;
}

/// Stage 3: gathers weights before the uses of their unit, and drops them afterwards. Weights that the next use needs,
/// too, stay. Without reshard, weights stay until their last use in the step.
Program gather_weights(const Plan& plan, const Program& program, const std::string& axis, const ZeroOptions& o) {
  const auto units = units_of(plan, program, axis);
  const auto uses = uses_of(program, units);
  const auto in_use = [&](std::size_t use, Index slice) {
    return use < uses.size() &&
           std::ranges::any_of(units[uses[use].unit].weights, [&](const Bucket& b) { return b.slice.begin == slice; });
  };
  // Whether weights stay in memory from one use to the next.
  const auto stays = [&](std::size_t use, Index slice) {
    for (std::size_t next = use + 1; next < uses.size(); ++next)
      if (in_use(next, slice)) return !o.reshard || next == use + 1;
    return false;
  };
  std::map<Index, ActionId> gathered, dropped;  // by first element of the slice; gathered: of slices in memory
  std::size_t now = 0, ahead = 0;               // the use that runs; the next one to gather for
  return rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action&) {
    std::vector<ActionId> waits;
    if (now < uses.size() && id == uses[now].first) {
      for (; ahead < uses.size() && ahead <= now + static_cast<std::size_t>(o.prefetch); ++ahead) {
        const auto& weights = units[uses[ahead].unit].weights;
        // Weights that a use in between drops cannot be gathered before.
        const auto is_dropped = [&](const Bucket& b) {
          for (std::size_t use = now; use < ahead; ++use)
            if (in_use(use, b.slice.begin) && !stays(use, b.slice.begin)) return true;
          return false;
        };
        if (std::ranges::any_of(weights, is_dropped)) break;
        for (const Bucket& b : weights)
          if (!gathered.contains(b.slice.begin)) {
            const ActionId before = dropped.try_emplace(b.slice.begin, -1).first->second;
            Action gather =
                on_slice(ActionKind::all_gather, Stream::comm, b.slice, b.axis, {before}, OperandKind::weights);
            gather.arguments = {{GatherLayout::as_read, 1}};
            gathered[b.slice.begin] = rebuild.add(std::move(gather));
          }
      }
      for (const Bucket& b : units[uses[now].unit].weights) waits.push_back(gathered.at(b.slice.begin));
    }
    const ActionId here = rebuild.keep(id, waits);
    if (now == uses.size() || id != uses[now].last) return;
    for (const Bucket& b : units[uses[now].unit].weights)
      if (!stays(now, b.slice.begin)) {
        gathered.erase(b.slice.begin);
        dropped[b.slice.begin] =
            rebuild.add(on_slice(ActionKind::drop, Stream::compute, b.slice, b.axis, {here}, OperandKind::weights));
      }
    ++now;
  });
}

/// Stages 1 and 2: gathers the weights that other ranks have updated in the step before, each slice before the first
/// unit that uses it. Gathers of the next such unit start at the same time, and run under the passes in between.
Program gather_before_passes(const Plan& plan, const Program& program) {
  struct FirstUse {
    ActionId pass;
    Action gather;
  };
  std::vector<FirstUse> all;  // in order
  std::vector<const Action*> unused;
  for (const Action& a : program.actions)
    if (a.kind == ActionKind::update && !a.peer.axis.empty()) unused.push_back(&a);
  const std::vector<Segment> segments = segments_of(plan, program);
  for (ActionId id = 0; id < std::ssize(program.actions) && !unused.empty(); ++id) {
    const Action& pass = program.actions[id];
    const auto unit = std::ranges::find(segments, pass.part, &Segment::first);
    if (pass.kind != ActionKind::forward || unit == segments.end()) continue;
    std::erase_if(unused, [&](const Action* update) {
      const auto needs = [&](const PartInfo& part) { return uses(part, update->slice); };
      if (std::none_of(&plan.parts[unit->first], &plan.parts[unit->end - 1] + 1, needs)) return false;
      all.push_back({id, on_slice(ActionKind::all_gather, Stream::comm, update->slice, update->peer.axis, {},
                                  OperandKind::weights)});
      return true;
    });
  }
  std::vector<ActionId> started;
  const auto start_unit = [&](Rebuild& rebuild) {  // the gathers of the next unit that are not started
    const std::size_t first = started.size();
    while (started.size() < all.size() && all[started.size()].pass == all[first].pass)
      started.push_back(rebuild.add(all[started.size()].gather));
  };
  std::size_t used = 0;
  return rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    if (started.empty() && is_pass(a)) start_unit(rebuild);
    std::vector<ActionId> waits;
    if (used < all.size() && all[used].pass == id) start_unit(rebuild);
    for (; used < all.size() && all[used].pass == id; ++used) waits.push_back(started[used]);
    rebuild.keep(id, waits);
  });
}

/// Divides updates along the axes `shards` only. A reduction over further axes becomes one along `shards`, and a sum of
/// the shards over the further axes. Weights that are not reduced along `shards` are updated by each rank.
Program with_replicas(const Program& program, const std::string& shards) {
  std::vector<Action> waiting;  // sums that start once the next reduction has started
  std::vector<std::pair<Slice, ActionId>> sums;
  return rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    const auto start_sums = [&] {
      for (Action& sum : waiting) sums.emplace_back(sum.slice, rebuild.add(sum));
      waiting.clear();
    };
    const std::string rest = axes_without(a.peer.axis, shards), inside = axes_without(a.peer.axis, rest);
    const bool whole = inside.empty() && !rest.empty();
    if (whole && (a.kind == ActionKind::all_gather || a.kind == ActionKind::drop)) return;
    const bool of_weights = is_pass(a) || a.kind == ActionKind::all_gather || drops(a, OperandKind::weights);
    if (!of_weights && !is_reduction(a)) start_sums();
    std::vector<ActionId> also;
    for (const auto& [slice, sum] : sums)
      if (!of_weights && a.slice.overlaps(slice)) also.push_back(sum);
    const ActionId now = rebuild.keep(id, also);
    Action& kept = rebuild.at(now);
    if (whole && is_reduction(a))
      kept.kind = ActionKind::all_reduce;
    else if (is_reduction(a) || a.kind == ActionKind::all_gather || a.kind == ActionKind::drop ||
             a.kind == ActionKind::update)
      kept.peer.axis = inside;
    if (!is_reduction(a)) return;
    start_sums();
    if (whole || rest.empty()) return;
    Action sum = on_slice(ActionKind::all_reduce, Stream::comm, a.slice, rest, {now}, OperandKind::gradients);
    sum.shard_axis = inside;
    waiting.push_back(std::move(sum));
  });
}

Plan rewrite_zero(Plan plan, int stage, const ZeroOptions& o) {
  plan = with_reductions(std::move(plan), "zero");
  for (const std::string& name : o.axis.empty() ? std::vector<std::string>{} : names_in(o.axis))
    check(plan.axes.empty() || std::ranges::find(plan.axes, name, &Axis::name) != plan.axes.end(), "zero",
          "axis={} names '{}', which the mesh does not have, only {}: give the mesh that axis, or leave it out", o.axis,
          name, [&] { return to_string(plan.axes); });
  if (const std::string more = axes_without(o.axis, plan.reduced_axis()); plan.size(more) > 1)
    plan = reduce_over(std::move(plan), {.axis = more});
  const std::string axis = plan.reduced_axis();
  for (Program& program : plan.programs) {
    if (reductions_of(program).empty()) continue;
    if (stage == 3) program = gather_weights(plan, reduce_by_units(plan, program, axis), axis, o);
    program = update_by_bucket(program, ActionKind::reduce_scatter);
    if (stage < 3) program = gather_before_passes(plan, program);
    if (stage >= 2) program = drop_gradients(program, plan.programs.size() > 1);
    if (!o.axis.empty()) program = with_replicas(program, o.axis);
  }
  return plan;
}

}  // namespace

Strategy zero(int stage, const ZeroOptions& o) {
  check(stage >= 1 && stage <= 3, "zero",
        "stage={}, but stages are 1 (divides optimizer state), 2 (and gradients) and 3 (and weights): use one of these",
        stage);
  const ZeroOptions usual;
  check(stage == 3 || (o.reshard == usual.reshard && o.prefetch == usual.prefetch), "zero",
        "stage={} keeps memory for whole weights: use prefetch and reshard with stage 3", stage);
  check(o.prefetch >= 0, "zero", "prefetch={}, but it is a number of parts: use 0 or more", o.prefetch);
  std::string name = fmt::format("zero({}", stage);
  if (!o.axis.empty()) name += ", axis=" + o.axis;
  if (o.prefetch != usual.prefetch) name += fmt::format(", prefetch={}", o.prefetch);
  if (o.reshard != usual.reshard) name += ", reshard=false";
  return {name + ")", Claim::exact, [stage, o](Plan plan) { return rewrite_zero(std::move(plan), stage, o); }, "",
          StrategyOrder::updates};
}

}  // namespace trireme
