// Everything on one rank, in the order of the chain rule. Every other strategy starts from this plan.
#include "parallel/strategies/strategy.h"

namespace trireme {

Plan serial(std::vector<PartInfo> parts, Index parameters, Index buffers, std::vector<Axis> axes) {
  Role role{"all", {}};
  int n = static_cast<int>(parts.size());
  for (int p = 0; p < n; ++p) role.actions.push_back({.kind = ActionKind::forward, .part = p});
  role.actions.push_back({.kind = ActionKind::loss});
  for (int p = n - 1; p >= 0; --p) role.actions.push_back({.kind = ActionKind::backward, .part = p});
  role.actions.push_back({.kind = ActionKind::update, .slice = {0, parameters}});
  Plan plan{std::move(parts), parameters, buffers, {std::move(role)}};
  plan.axes = std::move(axes);
  return plan;
}

}  // namespace trireme
