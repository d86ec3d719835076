// The serial plan: everything on one rank, in the order of the chain rule. All other strategies rewrite it.
#include "parallel/strategies/strategy.h"

namespace trireme {

Plan serial(std::vector<PartInfo> parts, Index parameters, Index buffers, std::vector<Axis> axes) {
  Program program{"all", {}};
  int n = static_cast<int>(parts.size());
  for (int p = 0; p < n; ++p) program.actions.push_back({.kind = ActionKind::forward, .part = p});
  program.actions.push_back({.kind = ActionKind::loss});
  for (int p = n - 1; p >= 0; --p) program.actions.push_back({.kind = ActionKind::backward, .part = p});
  program.actions.push_back({.kind = ActionKind::update, .slice = {0, parameters}});
  Plan plan{std::move(parts), parameters, buffers, {std::move(program)}};
  plan.axes = std::move(axes);
  return plan;
}

}  // namespace trireme
