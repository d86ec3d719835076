#include "parallel/plan/segments.h"

#include "parallel/plan/action_kind.h"

namespace trireme {

std::vector<Segment> find_segments(const Role& role, int parts) {
  std::vector<bool> runs(static_cast<std::size_t>(parts)), joined(static_cast<std::size_t>(parts), true);
  const Action* before = nullptr;  // a backward that may go on with the part in front
  auto part_from = [&](int part) {
    if (part >= 0 && part < parts) joined[static_cast<std::size_t>(part)] = false;
  };
  auto goes_on = [](const Action& a, const Action& b) {
    return a.verb == b.verb && a.micro == b.micro && b.part - a.part == (a.verb == ActionKind::forward ? 1 : -1);
  };
  auto end_of = [&](const Action* a) {  // the list leaves part a: it is not joined to the one that would follow
    if (a) part_from(a->verb == ActionKind::forward ? a->part : a->part - 1);
  };
  for (const Action& a : role.actions) {
    if (is_reduction(a) || a.verb == ActionKind::average) continue;
    const bool pass = a.verb == ActionKind::forward || is_backward(a);
    if (!before || !pass || !goes_on(*before, a)) {
      end_of(before);
      if (pass) part_from(a.verb == ActionKind::forward ? a.part - 1 : a.part);
    }
    if (a.verb == ActionKind::forward) runs[static_cast<std::size_t>(a.part)] = true;
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

}  // namespace trireme
