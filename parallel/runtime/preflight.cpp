#include "parallel/runtime/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trireme {
namespace {

/// Axes of the mesh along which the ranks hold one model and run one plan.
std::vector<std::string> used_axes(const Plan& plan) {
  std::vector<std::string> axes = names_in(plan.reduced_axis());
  if (plan.roles.size() > 1) axes.push_back(plan.role_axis);
  return axes;
}

}  // namespace

void check_mesh(const Plan& plan, const Mesh& mesh, const std::vector<std::string>& layer_axes) {
  auto axes = used_axes(plan);
  axes.insert(axes.end(), layer_axes.begin(), layer_axes.end());
  for (auto& a : mesh.axes())
    check(
        a.size == 1 || std::find(axes.begin(), axes.end(), a.name) != axes.end(), "step",
        "mesh axis '{}' has {} ranks, but strategy '{}' uses only '{}'", a.name, a.size,
        [&] { return plan.strategies.empty() ? "serial" : fmt::format("{}", fmt::join(plan.strategies, " | ")); },
        fmt::join(axes, "', '"));
  check(plan.roles.size() == 1 || static_cast<int>(plan.roles.size()) == mesh.size(plan.role_axis), "step",
        "the plan has {} roles along '{}', where the mesh has {} ranks", plan.roles.size(), plan.role_axis,
        mesh.size(plan.role_axis));
}

void check_sound(const Plan& plan, const Mesh& mesh) {
  auto faults = check(plan, mesh.size(plan.reduced_axis()));
  check(faults.empty(), "plan", "{}{}", faults.empty() ? "" : faults[0],
        [&] { return faults.size() > 1 ? fmt::format(" (and {} faults more)", faults.size() - 1) : ""; });
}

void refuse_shared_across_roles(const Plan& plan, const Chain& chain) {
  std::map<const void*, int> home;
  for (int p = 0; p < chain.size() && plan.roles.size() > 1; ++p)
    for (auto& [id, name] : chain.tensors(p)) {
      const int first = home.try_emplace(id, p).first->second;
      check(plan.role_of(first) == plan.role_of(p), "step",
            "parts '{}' and '{}' share the tensor '{}', but stand in different stages: cut elsewhere",
            plan.parts[static_cast<std::size_t>(first)].name, plan.parts[static_cast<std::size_t>(p)].name, name);
    }
}

}  // namespace trireme
