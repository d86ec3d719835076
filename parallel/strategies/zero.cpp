// ZeRO: reductions become reduce-scatters, each rank updates its shards, and other ranks' shards are gathered. Weights
// that the ranks divide already have no reduction along their axis, and stay as they are.
#include <algorithm>
#include <map>
#include <ranges>

#include "parallel/plan/action_kind.h"
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
std::vector<Unit> units_of(const Plan& plan, const Program& program, const std::string& axis) {
  std::vector<Segment> segments;
  if (plan.programs.size() > 1) segments = Liveness(program).segments;
  for (int p = 0; p < std::ssize(plan.parts) && plan.programs.size() == 1; ++p) segments.push_back({p, p + 1});
  const std::vector<Slice> tied = tied_slices(plan);
  const Index all = std::max<Index>(1, plan.parameters);
  const DataParallelOptions uncut{.axis = axis, .first_bucket = all, .bucket = all};
  std::vector<Unit> units;
  for (const Segment& s : segments) {
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

/// Stage 3: gathers weights before a unit's forward and backward, and drops them afterwards.
Program gather_weights(const Plan& plan, const Program& program, const std::string& axis) {
  const auto units = units_of(plan, program, axis);
  std::map<Index, ActionId> dropped;  // by first element of the slice
  return rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    const bool uses = a.kind != ActionKind::backward_weight && is_pass(a);
    std::size_t u = 0;
    while (u < units.size() && !(units[u].parts.first <= a.part && a.part < units[u].parts.end)) ++u;
    if (!uses || u == units.size() || units[u].weights.empty()) {
      rebuild.keep(id);
      return;
    }
    const auto& [parts, weights] = units[u];
    const bool forward = a.kind == ActionKind::forward;
    std::vector<ActionId> gathered;
    for (const Bucket& b : a.part == (forward ? parts.first : parts.end - 1) ? weights : std::vector<Bucket>{}) {
      const ActionId before = dropped.try_emplace(b.slice.begin, -1).first->second;
      gathered.push_back(
          rebuild.add(on_slice(ActionKind::all_gather, Stream::comm, b.slice, b.axis, {before}, OperandKind::weights)));
    }
    const ActionId now = rebuild.keep(id, gathered);
    for (const Bucket& b : a.part == (forward ? parts.end - 1 : parts.first) ? weights : std::vector<Bucket>{})
      dropped[b.slice.begin] =
          rebuild.add(on_slice(ActionKind::drop, Stream::compute, b.slice, b.axis, {now}, OperandKind::weights));
  });
}

Plan rewrite_zero(Plan plan, int stage) {
  plan = with_reductions(std::move(plan), "zero");
  const std::string axis = plan.reduced_axis();
  for (Program& program : plan.programs) {
    if (reductions_of(program).empty()) continue;
    if (stage == 3) program = gather_weights(plan, reduce_by_units(plan, program, axis), axis);
    const auto give = stage < 3 ? std::optional(ActionKind::all_gather) : std::nullopt;
    program = update_by_bucket(program, ActionKind::reduce_scatter, give);
    if (stage >= 2) program = drop_gradients(program, plan.programs.size() > 1);
  }
  return plan;
}

}  // namespace

Strategy zero(int stage) {
  check(stage >= 1 && stage <= 3, "zero",
        "stage={}, but stages are 1 (divides optimizer state), 2 (and gradients) and 3 (and weights): use one of these",
        stage);
  return {fmt::format("zero({})", stage), Claim::exact,
          [stage](Plan plan) { return rewrite_zero(std::move(plan), stage); }, "", StrategyOrder::updates};
}

}  // namespace trireme
