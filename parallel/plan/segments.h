// Segments: neighbouring parts of a model that a role runs as one, forward and backward.
#pragma once
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// Parts [first, end).
struct Segment {
  int first = 0, end = 0;
};
/// The longest segments whose forward actions, and whose backward actions of each kind, stand together in the role's
/// list for every micro-batch. Reductions do not part neighbours; messages and everything else do.
std::vector<Segment> find_segments(const Role&, int parts);

}  // namespace trireme
