// What is refused before the first step: plans that do not fit the mesh or the model. All throw Error.
#pragma once
#include <string>
#include <vector>

#include "parallel/comm/world/mesh.h"
#include "parallel/model/chain.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// Every axis of more than one rank is used, by the plan or for layers, and roles are as many as ranks.
void check_mesh(const Plan&, const Mesh&, const std::vector<std::string>& layer_axes);
/// check(plan) finds nothing.
void check_sound(const Plan&, const Mesh&);
/// A weight of two parts gets two gradients; both must come about in one role.
void refuse_shared_across_roles(const Plan&, const Chain&);

}  // namespace trireme
