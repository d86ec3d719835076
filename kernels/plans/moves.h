// Plans of the kernels that move elements (kernels/contracts/move.h): what is copied from where to where, for all
// backends.
#pragma once
#include <utility>

#include "kernels/core/view.h"

namespace trireme {

/// Axes walked in two dense blocks at the same time, outermost first, without those of extent 1; neighbours are merged.
/// Steps count elements.
struct Axes {
  int rank = 0;
  Index extent[Shape::max_rank] = {}, to_step[Shape::max_rank] = {}, from_step[Shape::max_rank] = {};

  /// A further innermost axis.
  void add(Index n, Index to, Index from);
  void erase(int axis);
  Index count() const;  ///< of places
};

/// Where item k of the axes (row-major) lies, to and from.
inline std::pair<Index, Index> place(const Axes& axes, Index k) {
  Index to = 0, from = 0;
  for (int i = axes.rank - 1; i >= 0; --i) {
    Index at = k % axes.extent[i];
    k /= axes.extent[i], to += at * axes.to_step[i], from += at * axes.from_step[i];
  }
  return {to, from};
}

/// Contiguous runs of elements, one per place of the outer axes. No elements: run 0.
struct Runs {
  Index to_first = 0, from_first = 0, run = 0;
  Axes outer;
};

/// Throws Error for a box that lies outside of either block, or other ranks or types.
Runs plan_copy_box(const View& to, const Shape& to_at, const View& from, const Shape& from_at, const Shape& extent);

/// y's axes with their steps in y (to) and in x (from). Throws Error where y is not x in this order.
Axes plan_permute(const View& y, const View& x, const Shape& order);

}  // namespace trireme
