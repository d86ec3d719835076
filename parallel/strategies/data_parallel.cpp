// Data parallelism: each rank takes its rows of the global batch. Gradients are summed bucket by bucket during
// backward.
#include <ranges>

#include "parallel/plan/action_kind.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

/// Throws Error if gradients are reduced along the axis already, or cannot be.
void check_not_reduced(const Plan& plan, const std::string& axis) {
  const auto ours = names_in(axis);
  for (const std::string& name : ours)
    check(plan.consistency_along(name) == Consistency{}, "strategy",
          "ranks along mesh axis '{}' have different weights ({}), so their gradients cannot be summed over it: use "
          "another axis of the mesh",
          name, [&] { return to_string(plan.consistency_along(name)); });
  check(
      !plan.has_stages() || std::ranges::find(ours, plan.stage_axis) == ours.end(), "strategy",
      "mesh axis '{}' has the stages of a pipeline, whose weights differ, so their gradients cannot be summed over it: "
      "use another axis of the mesh",
      plan.stage_axis);
  for (const Program& program : plan.programs) {
    check(!program.serves(), "strategy",
          "parameter_server sums the gradients already, so they cannot be summed over '{}' as well: use it without "
          "data_parallel, which zero, central_storage and compress bring along",
          axis);
    for (const Action& a : program.actions) {
      check((a.kind != ActionKind::update || a.peer.axis.empty()) && a.codec == nullptr, "strategy",
            "gradients are encoded, or their updates divided, so they cannot be summed over '{}' as well: write custom "
            "strategies before zero, central_storage and compress",
            axis);
      if (!is_reduction(a)) continue;
      for (const std::string& name : names_in(a.peer.axis))
        check(
            std::find(ours.begin(), ours.end(), name) == ours.end(), "strategy",
            "gradients are summed over mesh axis '{}' already, so no other strategy can sum them over it: leave one of "
            "the two out, or give it another axis of the mesh",
            name);
    }
  }
}

/// Throws Error if the axis divides weights: ranks then have different weights, whose gradients must not be summed.
void check_not_divided(const Plan& plan, const std::string& axis) {
  const auto names = names_in(axis);
  for (const PartInfo& part : plan.parts)
    for (const auto& [divides, slices] : part.divided)
      check(std::find(names.begin(), names.end(), divides) == names.end(), "strategy",
            "gradients would be summed over '{}', but mesh axis '{}' divides the weights of '{}': use one axis of the "
            "mesh "
            "to divide weights and another one to sum gradients",
            axis, divides, part.name);
}

}  // namespace

void average_buffers(Plan& plan, const std::string& axis, const Trigger& when) {
  if (plan.size(axis) == 1) return;
  for (Program& program : plan.programs) {
    std::vector<Slice> slices;
    ActionId last = -1;
    for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
      const Action& a = program.actions[id];
      if (a.kind == ActionKind::forward || a.kind == ActionKind::loss) last = id;
      if (a.kind == ActionKind::forward && a.microbatch == 0 && plan.parts[a.part].buffers.size() > 0)
        slices.push_back(plan.parts[a.part].buffers);
    }
    const int phase = when == Trigger{} ? 0 : add_phase(program, "average statistics over " + axis, when);
    for (const Slice& buffers : detail::joined(std::move(slices))) {
      Action average = on_slice(ActionKind::all_reduce, Stream::comm, buffers, axis, {last});
      average.payload = OperandKind::statistics;
      average.phase = phase;
      insert(program, last + 1, std::move(average));
    }
  }
}

Plan reduce_over(Plan plan, const DataParallelOptions& o) {
  check_not_reduced(plan, o.axis);
  bool reduced = false;
  for (Program& program : plan.programs)
    for (Action& a : program.actions)
      if (is_reduction(a) && !(plan.has_stages() && a.peer.axis == plan.stage_axis)) {
        a.peer.axis = o.axis + "+" + a.peer.axis;
        reduced = true;
      }
  const std::string axis = reduced ? plan.reduced_axis() : o.axis;
  if (names_in(axis).size() > 1) check_not_divided(plan, axis);
  const DataParallelOptions usual;
  const bool cuts = !reduced || o.first_bucket != usual.first_bucket || o.bucket != usual.bucket || !o.overlap;
  for (std::size_t r = 0; cuts && r < plan.programs.size(); ++r) {
    std::vector<Slice> buckets;
    const auto slices = plan.updated(r);
    for (const Slice& slice : slices | std::views::reverse)
      for (const Slice& bucket : cut_buckets(plan.parts, slice, o)) buckets.push_back(bucket);
    const bool overlap = o.overlap && !is_asynchronous(plan);
    plan.programs[r] = reduce_slices(plan, plan.programs[r], buckets, axis, overlap);
  }
  return plan;
}

std::vector<Slice> cut_buckets(const std::vector<PartInfo>& parts, Slice whole, const DataParallelOptions& o) {
  check(o.first_bucket > 0 && o.bucket > 0, "data_parallel",
        "first_bucket={}, bucket={}, but a bucket has at least 1 element: use numbers above 0", o.first_bucket,
        o.bucket);
  // Parts, or the pieces of them that the axis divides or not.
  struct Piece {
    Slice slice;
    bool divided;
    Device device;
  };
  std::vector<Piece> pieces;
  for (const PartInfo& part : parts) {
    const Slice mine{std::max(part.slice.begin, whole.begin), std::min(part.slice.end, whole.end)};
    Index at = mine.begin;
    const auto add = [&](Index next, bool divided) {
      if (next > at) pieces.push_back({{at, next}, divided, part.device});
      at = std::max(at, next);
    };
    if (const auto along = part.divided.find(o.axis); along != part.divided.end())
      for (const Slice& s : along->second) {
        if (!s.overlaps(mine)) continue;
        add(std::max(at, s.begin), false);
        add(std::min(s.end, mine.end), true);
      }
    add(mine.end, false);
  }
  std::vector<Slice> buckets;
  Index end = whole.end, limit = o.first_bucket;
  for (std::size_t i = pieces.size(); i-- > 0 && end > whole.begin;) {
    const Index begin = i == 0 ? whole.begin : pieces[i].slice.begin;
    if (begin >= end) continue;
    if (pieces[i].divided) {
      end = begin;
      continue;
    }
    const bool last = i == 0 || pieces[i - 1].divided || pieces[i - 1].device != pieces[i].device;
    if (!last && end - begin < limit) continue;
    for (; end - begin > 2 * o.bucket; end -= o.bucket) buckets.push_back({end - o.bucket, end});
    if (end > begin) buckets.push_back({begin, end});
    end = begin;
    limit = o.bucket;
  }
  return buckets;
}

Strategy reducing(const std::string& name, const DataParallelOptions& o) {
  check(o.norm_group == 1 || o.norm_scope == NormScope::group, name,
        "norm_group={} needs norm_scope=group, but norm_scope is {}: add norm_scope=group, or leave norm_group out",
        o.norm_group, [&] { return to_string(o.norm_scope.value_or(NormScope::global)); });
  Strategy s(
      name, Claim::exact, [o](Plan plan) { return reduce_over(std::move(plan), o); }, to_string(o),
      StrategyOrder::rows);
  s.norm_scope = o.norm_scope;
  s.norm_group = o.norm_group;
  return s;
}

Strategy data_parallel(DataParallelOptions o) { return reducing("data_parallel", o); }

}  // namespace trireme
