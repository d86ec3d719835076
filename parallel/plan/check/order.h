// Order: the dependencies between a program's actions. They follow from the order of a stream, from Action::after, and
// from Action::on_ready (actions that start during a backward). check(), simulate() and the executor use them.
#pragma once
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// A condition for the start of an action.
struct Dependency {
  ActionId on;  ///< an action of the same program
  /// The share of that action that must be done. 0: it has started; 1: it has ended. Between 0 and 1: the share of a
  /// backward; gradients are assumed to be completed at an even pace, from the end of the part's slice to its
  /// beginning.
  double share;
};

/// The dependencies of each action. A stream starts its actions in list order; an action of Stream::compute waits for
/// the end of the previous one. An on_ready action waits for the share of the backward that completes the gradients of
/// its slice; if `parts` is empty, for the whole backward. The ids in Action::after must be in range.
std::vector<std::vector<Dependency>> dependencies(const Program&, const std::vector<PartInfo>& parts = {});

}  // namespace trireme
