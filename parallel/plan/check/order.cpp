#include "parallel/plan/check/order.h"

#include <algorithm>

#include "parallel/plan/action_kind.h"

namespace trireme {
namespace {

/// The share of the backward after which the gradients of slice are complete.
double ready(const Action& backward, const Slice& slice, const std::vector<PartInfo>& parts) {
  if (!is_backward(backward) || backward.part < 0 || backward.part >= std::ssize(parts)) return 1;
  const Slice& part = parts[static_cast<std::size_t>(backward.part)].slice;
  if (part.size() <= 0 || slice.begin >= part.end) return 1;
  return static_cast<double>(part.end - std::max(part.begin, slice.begin)) / static_cast<double>(part.size());
}

}  // namespace

std::vector<std::vector<Dependency>> dependencies(const Program& program, const std::vector<PartInfo>& parts) {
  std::vector<std::vector<Dependency>> all;
  ActionId last[] = {-1, -1};  // by stream
  for (const Action& a : program.actions) {
    auto& mine = all.emplace_back();
    ActionId& before = last[static_cast<std::size_t>(a.stream)];
    if (before >= 0) mine.push_back({before, a.stream == Stream::compute ? 1.0 : 0.0});
    before = static_cast<ActionId>(all.size()) - 1;
    for (ActionId from : a.after) {
      const Action& waited = program.actions[static_cast<std::size_t>(from)];
      mine.push_back({from, a.on_ready ? ready(waited, a.slice, parts) : 1.0});
    }
  }
  return all;
}

}  // namespace trireme
