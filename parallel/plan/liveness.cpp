#include "parallel/plan/liveness.h"

#include <algorithm>
#include <map>
#include <set>

#include "parallel/plan/action_kind.h"

namespace trireme {
namespace {

std::vector<Segment> find_segments(const Program& program) {
  std::set<int> parts, cuts;  // parts that the program runs; parts after which a pass stops or starts
  const auto enters = [](const Action& a) { return a.kind == ActionKind::forward ? a.part - 1 : a.part; };
  const auto leaves = [](const Action& a) { return a.kind == ActionKind::forward ? a.part : a.part - 1; };
  const Action* before = nullptr;  // a pass that may continue with the next part
  for (const Action& a : program.actions) {
    if (is_reduction(a) || is_replica_sum(a) || averages_statistics(a)) continue;
    const bool pass = is_pass(a) && a.kind != ActionKind::loss;
    const bool waits = std::ranges::any_of(a.after, [&](ActionId id) {
      return id >= 0 && id < std::ssize(program.actions) && program.actions[id].stream == Stream::comm;
    });
    const bool goes_on = pass && !waits && before && before->kind == a.kind && before->microbatch == a.microbatch &&
                         leaves(*before) == enters(a);
    if (before && !goes_on) cuts.insert(leaves(*before));
    if (pass && !goes_on) cuts.insert(enters(a));
    if (a.kind == ActionKind::forward) parts.insert(a.part);
    before = pass ? &a : nullptr;
  }
  if (before) cuts.insert(leaves(*before));
  std::vector<Segment> segments;
  for (const int p : parts)
    if (segments.empty() || segments.back().end != p || cuts.contains(p - 1))
      segments.push_back({p, p + 1});
    else
      ++segments.back().end;
  return segments;
}

}  // namespace

Liveness::Liveness(const Program& program) : segments(find_segments(program)), actions_(program.actions.size()) {
  segment_of_part.assign(segments.empty() ? 0 : segments.back().end, -1);
  for (int s = 0; s < std::ssize(segments); ++s)
    for (int p = segments[s].first; p < segments[s].end; ++p) segment_of_part[p] = s;
  frees =
      std::any_of(program.actions.begin(), program.actions.end(), [](auto& a) { return a.kind == ActionKind::free; });
  std::map<std::pair<int, MicroBatch>, std::size_t> alive;  // index of ranges, by segment and micro-batch
  std::vector<Liveness::Range> carried;
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[id];
    const int s = segment_of(a.part);
    if (s < 0) continue;
    if (a.kind == ActionKind::forward && alive.try_emplace({s, a.microbatch}, ranges.size()).second)
      ranges.push_back({s, a.microbatch, id, static_cast<ActionId>(actions_)});
    const bool releases = frees ? a.kind == ActionKind::free : completes(a) && a.part == segments[s].first;
    if (!releases) continue;
    if (auto range = alive.extract({s, a.microbatch})) ranges[range.mapped()].end = id;
    if (a.microbatch.steps_ago > 0) carried.push_back({s, a.microbatch, 0, id});
  }
  // Activations of earlier steps: released in this step, or held throughout it.
  for (const Liveness::Range& last : carried) {
    ranges.insert(ranges.begin(), last);
    for (int ago = last.microbatch.steps_ago - 1; ago > 0; --ago)
      ranges.insert(ranges.begin(), {last.segment, {last.microbatch.index, ago}, 0, static_cast<ActionId>(actions_)});
  }
}

int peak_in_flight(const Program& program) {
  const auto alive = Liveness(program).totals([](const Liveness::Range&) { return 1; });
  return static_cast<int>(*std::max_element(alive.begin(), alive.end()));
}

}  // namespace trireme
