// Timeline: start and end of each action of a plan. The simulator predicts it, the executor records it, and drawings
// show it.
#pragma once
#include <algorithm>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// The time that one action of one rank took.
struct Span {
  int rank;         ///< in [0, Timeline::programs.size())
  ActionId action;  ///< of the rank's program
  double begin,     ///< seconds since the (first) step began
      end;          ///< seconds since the (first) step began
};

/// The times of the actions of all ranks.
struct Timeline {
  std::vector<int> programs = {};  ///< by rank: index of its program
  std::vector<Span> spans = {};    ///< in any order
  bool measured = false;           ///< true: recorded in a run; false: simulated

  /// The end of the last action, in seconds since the (first) step began; 0 without spans.
  double end() const {
    double last = 0;
    for (const Span& s : spans) last = std::max(last, s.end);
    return last;
  }
};

}  // namespace trireme
