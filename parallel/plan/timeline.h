// Timeline: when each action of a plan ran, or would run: what the simulator predicts and the executor records, and
// what the drawings show.
#pragma once
#include <algorithm>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

struct Span {
  int rank;
  ActionId action;    ///< of the rank's role
  double begin, end;  ///< seconds since the step began
};

struct Timeline {
  std::vector<int> roles = {};  ///< of each rank
  std::vector<Span> spans = {};
  bool measured = false;  ///< false: predicted

  double end() const {
    double last = 0;
    for (const Span& s : spans) last = std::max(last, s.end);
    return last;
  }
};

}  // namespace trireme
