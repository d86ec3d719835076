// Order: which actions of a program wait for which, as the plan promises it: by stream, by `after`, in the midst of a
// backward. check(), simulate() and who carries a plan out read it here.
#pragma once
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// What an action waits for.
struct Dependency {
  ActionId on;  ///< an action of the same program
  /// How much of it must be done: 0: it has started; 1: it has ended; between: of a backward, which goes through its
  /// part's slice from the end to the beginning at an even pace.
  double share;
};

/// The dependencies of each action. A stream starts its actions in list order, each of `compute` once the one before
/// has ended. An action on_ready waits for the share of the backward that leaves its slice complete; without parts for
/// all of it. The ids in `after` must be in range.
std::vector<std::vector<Dependency>> dependencies(const Program&, const std::vector<PartInfo>& parts = {});

}  // namespace trireme
