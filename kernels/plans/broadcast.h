// How two operands are broadcast to a result: the walk that binary kernels of all backends take.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

/// The result's axes, innermost first, with neighbours merged where both operands allow it; at least one. Steps count
/// elements; 0: broadcast. The innermost steps are 0 or 1.
struct Walk {
  int rank = 0;
  Index extent[Shape::max_rank], step_a[Shape::max_rank], step_b[Shape::max_rank];  // the first `rank` of each are set
};

/// Throws Error where a and b do not broadcast to y by NumPy's rules, or are of another type.
Walk plan_walk(const View& y, const View& a, const View& b, std::string_view op);

}  // namespace trireme
