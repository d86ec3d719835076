// Each rank takes its rows of the global batch; the gradients of all are summed, bucket by bucket, while
// backward goes on.
#include "parallel/plan/action_kind.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

/// The last action, in list order, that f holds for; -1: none.
template <class F>
ActionId last_of(const Program& program, F f) {
  const auto at = std::find_if(program.actions.rbegin(), program.actions.rend(), f);
  return static_cast<ActionId>(program.actions.rend() - at) - 1;
}

void add_reductions(const Plan& plan, Program& program, const std::vector<Slice>& buckets,
                    const DataParallelOptions& o) {
  for (const Slice& bucket : buckets) {
    // The last backward of a part that the bucket touches: then its gradients are whole.
    ActionId done =
        last_of(program, [&](const Action& a) { return completes(a) && plan.parts[a.part].slice.overlaps(bucket); });
    if (done < 0) continue;
    if (!o.overlap) done = last_of(program, completes);
    ActionId at = done + 1;  // behind the buckets that this action completes too
    while (at < static_cast<int>(program.actions.size()) && program.actions[at].kind == ActionKind::all_reduce) ++at;
    Action reduce = on_slice(ActionKind::all_reduce, Stream::comm, bucket, o.axis, {done});
    reduce.on_ready = o.overlap;
    insert(program, at, std::move(reduce));
    for (std::size_t id = at; id < program.actions.size(); ++id) {
      Action& a = program.actions[id];
      if (a.kind == ActionKind::update && a.slice.overlaps(bucket)) a.after.push_back(at);
    }
  }
}

/// The running statistics of a program's parts, neighbours joined.
std::vector<Slice> buffers_of(const Plan& plan, int program) {
  std::vector<Slice> slices;
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    const Slice& s = plan.parts[p].buffers;
    if (s.size() == 0 || plan.program_of(static_cast<int>(p)) != program) continue;
    slices.push_back(s);
  }
  return detail::joined(std::move(slices));
}

/// Sums over o.axis have to be the first along it, and to come before what shares out the updates.
void check_not_reduced(const Plan& plan, const std::string& axis) {
  const auto ours = names_in(axis);
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions) {
      check(a.kind != ActionKind::update || a.peer.axis.empty(), "strategy",
            "zero and central_storage share out updates of gradients that are whole, and those are to be summed over "
            "'{}' as well: write zero or central_storage last",
            axis);
      if (!is_reduction(a)) continue;
      for (const std::string& name : names_in(a.peer.axis))
        check(std::find(ours.begin(), ours.end(), name) == ours.end(), "strategy",
              "gradients are summed over the mesh axis '{}' already: only one strategy may do so", name);
    }
}

}  // namespace

void average_buffers(Plan& plan, const std::string& axis) {
  if (plan.size(axis) == 1) return;
  const auto runs = [](const Action& a) { return a.kind == ActionKind::forward || a.kind == ActionKind::loss; };
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    Program& program = plan.programs[r];
    for (const Slice& buffers : buffers_of(plan, static_cast<int>(r)))
      if (ActionId last = last_of(program, runs); last >= 0)
        insert(program, last + 1, on_slice(ActionKind::average, Stream::comm, buffers, axis, {last}));
  }
}

Plan reduce_over(Plan plan, const DataParallelOptions& o) {
  check_not_reduced(plan, o.axis);
  bool reduced = false;
  for (Program& program : plan.programs)
    for (Action& a : program.actions)
      if (is_reduction(a) && a.peer.axis != plan.stage_axis) a.peer.axis = o.axis + "+" + a.peer.axis, reduced = true;
  for (std::size_t r = 0; !reduced && r < plan.programs.size(); ++r) {
    std::vector<Slice> buckets;
    auto slices = plan.updated(r);
    for (std::size_t i = slices.size(); i-- > 0;)
      for (const Slice& bucket : cut_buckets(plan.parts, slices[i], o)) buckets.push_back(bucket);
    add_reductions(plan, plan.programs[r], buckets, o);
  }
  return plan;
}

std::vector<Slice> cut_buckets(const std::vector<PartInfo>& parts, Slice whole, const DataParallelOptions& o) {
  check(o.first_bucket > 0 && o.bucket > 0, "data_parallel", "buckets of {} and {} elements: both must be above 0",
        o.first_bucket, o.bucket);
  std::vector<Slice> buckets;
  Index end = whole.end, limit = o.first_bucket;
  for (std::size_t i = parts.size(); i-- > 0 && end > whole.begin;) {
    const bool first = i == 0 || parts[i].slice.begin <= whole.begin;
    const Index begin = first ? whole.begin : parts[i].slice.begin;
    if (begin >= end) continue;
    if (parts[i].divided == o.axis) {
      end = begin;
      continue;
    }
    const bool last = first || parts[i - 1].divided == o.axis || parts[i - 1].device != parts[i].device;
    if (!last && end - begin < limit) continue;
    for (; end - begin > 2 * o.bucket; end -= o.bucket) buckets.push_back({end - o.bucket, end});
    if (end > begin) buckets.push_back({begin, end});
    end = begin;
    limit = o.bucket;
  }
  return buckets;
}

Strategy data_parallel(DataParallelOptions o) {
  Strategy s(
      "data_parallel", Claim::exact, [o](Plan plan) { return reduce_over(std::move(plan), o); }, to_string(o));
  s.norm_scope = o.norm_scope;
  s.norm_group = o.norm_group;
  return s;
}

}  // namespace trireme
