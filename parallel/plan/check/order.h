// Order: the dependencies between a program's actions that the plan promises: order of a stream, Action::after, and
// on_ready actions during a backward. check(), simulate() and the executor use them.
#pragma once
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// A condition for the start of an action.
struct Dependency {
  ActionId on;  ///< an action of the same program
  /// The share of that action that must be done. 0: it has started; 1: it has ended. Between 0 and 1: for a backward,
  /// which is taken to complete gradients from the end of its part's slice to the beginning at an even pace.
  double share;
};

/// The dependencies of each action. A stream starts its actions in list order; an action of `compute` waits for the end
/// of the previous one. An on_ready action waits for the share of the backward that completes the gradients of its
/// slice; without parts, for the whole backward. The ids in `after` must be in range.
std::vector<std::vector<Dependency>> dependencies(const Program&, const std::vector<PartInfo>& parts = {});

}  // namespace trireme
