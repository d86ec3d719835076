#include "parallel/plan/liveness.h"

#include <algorithm>
#include <map>

#include "parallel/plan/action_kind.h"

namespace trireme {

std::vector<Segment> find_segments(const Program& program) {
  int parts = 0;
  for (const Action& a : program.actions) parts = std::max(parts, a.part + 1);
  std::vector<bool> runs(static_cast<std::size_t>(parts)), joined(static_cast<std::size_t>(parts), true);
  const Action* before = nullptr;  // a backward that may go on with the part in front
  auto part_from = [&](int part) {
    if (part >= 0 && part < parts) joined[static_cast<std::size_t>(part)] = false;
  };
  auto goes_on = [](const Action& a, const Action& b) {
    return a.kind == b.kind && a.microbatch == b.microbatch &&
           b.part - a.part == (a.kind == ActionKind::forward ? 1 : -1);
  };
  auto end_of = [&](const Action* a) {  // the list leaves part a: it is not joined to the one that would follow
    if (a) part_from(a->kind == ActionKind::forward ? a->part : a->part - 1);
  };
  for (const Action& a : program.actions) {
    if (is_reduction(a) || a.kind == ActionKind::average) continue;
    const bool pass = a.kind == ActionKind::forward || is_backward(a);
    if (!before || !pass || !goes_on(*before, a)) {
      end_of(before);
      if (pass) part_from(a.kind == ActionKind::forward ? a.part - 1 : a.part);
    }
    if (a.kind == ActionKind::forward) runs[static_cast<std::size_t>(a.part)] = true;
    before = pass ? &a : nullptr;
  }
  end_of(before);
  std::vector<Segment> segments;
  for (int p = 0; p < parts; ++p) {
    if (!runs[static_cast<std::size_t>(p)]) continue;
    if (!segments.empty() && segments.back().end == p && joined[static_cast<std::size_t>(p - 1)])
      ++segments.back().end;
    else
      segments.push_back({p, p + 1});
  }
  return segments;
}

Liveness::Liveness(const Program& program) : segments(find_segments(program)), actions_(program.actions.size()) {
  segment_of_part.assign(segments.empty() ? 0 : static_cast<std::size_t>(segments.back().end), -1);
  for (int s = 0; s < std::ssize(segments); ++s)
    for (int p = segments[s].first; p < segments[s].end; ++p) segment_of_part[p] = s;
  frees =
      std::any_of(program.actions.begin(), program.actions.end(), [](auto& a) { return a.kind == ActionKind::free; });
  std::map<std::pair<int, int>, std::size_t> alive;  // index of ranges, by segment and micro-batch
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[id];
    const int s = segment_of(a.part);
    if (s < 0) continue;
    if (a.kind == ActionKind::forward && alive.try_emplace({s, a.microbatch}, ranges.size()).second)
      ranges.push_back({s, a.microbatch, id, static_cast<ActionId>(actions_)});
    const bool releases = frees ? a.kind == ActionKind::free : completes(a) && a.part == segments[s].first;
    if (!releases) continue;
    if (auto range = alive.extract({s, a.microbatch})) ranges[range.mapped()].end = id;
  }
}

int peak_in_flight(const Program& program) {
  const auto alive = Liveness(program).totals([](const LiveRange&) { return 1; });
  return static_cast<int>(*std::max_element(alive.begin(), alive.end()));
}

}  // namespace trireme
