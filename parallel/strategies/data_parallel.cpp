// Data parallelism: each rank takes its rows of the global batch. Gradients are summed bucket by bucket during
// backward.
#include <map>
#include <ranges>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/ties.h"
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
          "data_parallel (zero, central_storage and compress include it)",
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
      Action average = on_slice(ActionKind::all_reduce, Stream::comm, buffers, axis, {last}, OperandKind::statistics);
      average.phase = phase;
      insert(program, last + 1, std::move(average));
    }
  }
}

Plan reduce_over(Plan plan, const DataParallelOptions& o) {
  check_not_reduced(plan, o.axis);
  DataParallelOptions all = o;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions)
      if (sums_rows(plan, a)) all.axis = o.axis + "+" + plan.reduced_axis();
  const bool reduced = all.axis != o.axis;
  const bool differ = std::ranges::any_of(plan.parts, [&](const PartInfo& part) {
    return std::ranges::any_of(part.divided,
                               [&](const auto& d) { return axes_without(all.axis, d.first) != all.axis; });
  });
  const DataParallelOptions usual;
  // With default options, existing buckets stay, cut at the borders between sets of axes.
  const bool keeps = reduced && o.first_bucket == usual.first_bucket && o.bucket == usual.bucket && o.overlap;
  DataParallelOptions uncut = all;
  uncut.first_bucket = uncut.bucket = std::max<Index>(1, plan.parameters);
  for (Program& program : plan.programs) {
    std::vector<Slice> before;  // buckets that stay
    bool overlap = o.overlap && !is_asynchronous(plan);
    for (Action& a : program.actions) {
      if (!keeps || !sums_rows(plan, a)) continue;
      before.push_back(a.slice);
      overlap = overlap && a.on_ready;
      if (!differ) a.peer.axis = all.axis;
    }
    if (keeps && !differ) continue;
    std::ranges::sort(before, {}, &Slice::begin);
    std::vector<Bucket> buckets;
    const auto slices = plan.updated(static_cast<std::size_t>(&program - plan.programs.data()));
    for (const Slice& slice : slices | std::views::reverse)
      for (const Slice& piece : cut_at(slice, before) | std::views::reverse)
        std::ranges::move(buckets_of(plan, piece, overlaps(before, piece) ? uncut : all), std::back_inserter(buckets));
    program = reduce_slices(plan, program, buckets, overlap);
  }
  return plan;
}

std::vector<Bucket> buckets_of(const Plan& plan, const Slice& whole, const DataParallelOptions& o) {
  std::vector<Bucket> buckets = cut_buckets(plan.parts, whole, o);
  std::erase_if(buckets, [&](const Bucket& b) { return b.axis != o.axis && plan.size(b.axis) == 1; });
  return buckets;
}

std::vector<Bucket> cut_buckets(const std::vector<PartInfo>& parts, Slice whole, const DataParallelOptions& o) {
  check(o.first_bucket > 0 && o.bucket > 0, "data_parallel",
        "first_bucket={}, bucket={}, but a bucket has at least 1 element: use numbers above 0", o.first_bucket,
        o.bucket);
  // Parts, or pieces of them whose gradients are summed over the same axes.
  struct Piece {
    Slice slice;
    std::string axis;
    Device device;
    bool joins(const Piece& other) const { return axis == other.axis && device == other.device; }
  };
  std::vector<Piece> pieces;
  for (const PartInfo& part : parts) {
    const Slice mine{std::max(part.slice.begin, whole.begin), std::min(part.slice.end, whole.end)};
    Index at = mine.begin;
    const auto add = [&](Index next, const std::string& axis) {
      if (next > at) pieces.push_back({{at, next}, axis, part.device});
      at = std::max(at, next);
    };
    std::map<Index, std::pair<Index, std::string>> apart;  // by begin: end, and the axes along which nothing is summed
    for (const auto& [axes, slices] : part.divided)
      for (const Slice& s : slices)
        if (s.overlaps(mine) && axes_without(o.axis, axes) != o.axis) apart[s.begin] = {s.end, axes};
    for (const auto& [begin, rest] : apart) {
      add(std::max(at, begin), o.axis);
      add(std::min(rest.first, mine.end), axes_without(o.axis, rest.second));
    }
    add(mine.end, o.axis);
  }
  std::vector<Bucket> buckets;
  Index end = whole.end, limit = o.first_bucket;
  for (std::size_t i = pieces.size(); i-- > 0 && end > whole.begin;) {
    const Index begin = i == 0 ? whole.begin : pieces[i].slice.begin;
    if (begin >= end) continue;
    const std::string& axis = pieces[i].axis;
    if (axis.empty()) {
      end = begin;
      continue;
    }
    if (i > 0 && pieces[i - 1].joins(pieces[i]) && end - begin < limit) continue;
    for (; end - begin > 2 * o.bucket; end -= o.bucket) buckets.push_back({{end - o.bucket, end}, axis});
    if (end > begin) buckets.push_back({{begin, end}, axis});
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
