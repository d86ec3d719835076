#include "parallel/plan/ties.h"

#include <algorithm>

#include "parallel/plan/action_kind.h"

namespace trireme {

std::vector<Slice> tied_slices(const Plan& plan) {
  std::vector<Slice> all;
  for (const PartInfo& part : plan.parts)
    for (const Slice& s : part.tied)
      if (std::ranges::find(all, s) == all.end()) all.push_back(s);
  std::ranges::sort(all, {}, &Slice::begin);
  return all;
}

bool uses(const PartInfo& part, const Slice& s) { return part.slice.overlaps(s) || overlaps(part.tied, s); }

bool overlaps(const std::vector<Slice>& slices, const Slice& s) {
  return std::ranges::any_of(slices, [&](const Slice& other) { return other.overlaps(s); });
}

std::vector<Tie> ties_of(const Plan& plan) {
  std::vector<Tie> ties;
  const std::vector<Slice> tied = plan.programs.size() > 1 ? tied_slices(plan) : std::vector<Slice>{};
  if (tied.empty()) return ties;
  std::vector<int> home(plan.parts.size(), -1);  // program that runs the part
  for (int r = static_cast<int>(plan.programs.size()); r-- > 0;)
    for (const Action& a : plan.programs[static_cast<std::size_t>(r)].actions)
      if (a.kind == ActionKind::forward && a.part >= 0 && a.part < std::ssize(home))
        home[static_cast<std::size_t>(a.part)] = r;
  for (const Slice& slice : tied) {
    Tie tie{slice, {}, -1};
    for (std::size_t p = 0; p < plan.parts.size(); ++p) {
      if (!uses(plan.parts[p], slice) || home[p] < 0) continue;
      tie.programs.push_back(home[p]);
      if (plan.parts[p].slice.overlaps(slice)) tie.owner = home[p];
    }
    std::ranges::sort(tie.programs);
    tie.programs.erase(std::unique(tie.programs.begin(), tie.programs.end()), tie.programs.end());
    if (tie.programs.size() > 1) ties.push_back(std::move(tie));
  }
  return ties;
}

std::vector<Slice> copies_in(const Plan& plan, std::size_t program) {
  const int here = static_cast<int>(program);
  std::vector<Slice> all;
  for (const Tie& tie : ties_of(plan))
    if (tie.owner != here && std::ranges::binary_search(tie.programs, here)) all.push_back(tie.slice);
  return all;
}

std::vector<Slice> cut_at(const Slice& whole, const std::vector<Slice>& at) {
  std::vector<Slice> pieces;
  Index begin = whole.begin;
  for (const Slice& s : at)
    for (const Index end : {s.begin, s.end})
      if (begin < end && end < whole.end) {
        pieces.push_back({begin, end});
        begin = end;
      }
  if (begin < whole.end) pieces.push_back({begin, whole.end});
  return pieces;
}

std::vector<ActionId> tied_sums(const Program& program, const Slice& slice) {
  std::vector<ActionId> ids;
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[static_cast<std::size_t>(id)];
    if (is_tied_sum(a) && a.slice.overlaps(slice)) ids.push_back(id);
  }
  return ids;
}

}  // namespace trireme
