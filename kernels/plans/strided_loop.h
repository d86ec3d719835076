// StridedLoop: a loop over the elements of a tensor that steps through several dense blocks at once: the plan of the
// kernels that broadcast, copy a box or permute, on all backends. (PyTorch's TensorIterator.)
#pragma once
#include <array>

#include "kernels/core/view.h"

namespace trireme::detail {

/// Axes innermost first, without those of extent 1; neighbours that every block steps through evenly are merged. Steps
/// count elements.
template <int blocks>
struct StridedLoop {
  using Steps = std::array<Index, blocks>;
  int rank = 0;
  Index extent[Shape::max_rank];  // the first `rank` of each are set
  Steps step[Shape::max_rank];    // step[axis][block]

  /// A further outermost axis.
  void add(Index n, const Steps& s) {
    if (n == 1) return;
    bool even = rank > 0;
    for (int b = 0; even && b < blocks; ++b) even = s[b] == step[rank - 1][b] * extent[rank - 1];
    if (even)
      extent[rank - 1] *= n;
    else
      extent[rank] = n, step[rank++] = s;
  }
  void erase(int axis) {
    --rank;
    for (int i = axis; i < rank; ++i) extent[i] = extent[i + 1], step[i] = step[i + 1];
  }
  /// Iterations.
  Index count() const {
    Index n = 1;
    for (int i = 0; i < rank; ++i) n *= extent[i];
    return n;
  }
  /// Where iteration k (row-major) is in each block.
  Steps offset(Index k) const {
    Steps at{};
    for (int i = 0; i < rank; k /= extent[i++])
      for (int b = 0; b < blocks; ++b) at[b] += k % extent[i] * step[i][b];
    return at;
  }
};

/// Over y, through a and b: steps are 0 along axes that an operand is broadcast over, so the innermost ones are 0 or 1.
/// At least one axis. Throws Error where a and b do not broadcast to y by NumPy's rules, or are of another type.
StridedLoop<2> plan_broadcast(const View& y, const View& a, const View& b, std::string_view op);

/// Over a box, through `to` and `from`: contiguous runs of elements, one per iteration. No elements: run 0.
struct BoxCopy {
  Index to_first = 0, from_first = 0, run = 0;
  StridedLoop<2> outer;
};
/// Throws Error for a box that lies outside of either block, or other ranks or types.
BoxCopy plan_copy_box(const View& to, const Shape& to_at, const View& from, const Shape& from_at, const Shape& extent);

/// Throws Error unless few [O, I, C] and all [O, N, C] are of one type and ids are I numbers of type i64
/// (kernel::Take).
void check_take(const View& few, const View& all, const View& ids, std::string_view op);

/// Over y, through y and x, whose steps are 0 along axes that it is repeated along. Throws Error where x does not
/// broadcast to y, or is of another type.
StridedLoop<2> plan_expand(const View& y, const View& x);

/// Over y, through y and x. Throws Error where y is not x in this order.
StridedLoop<2> plan_permute(const View& y, const View& x, const Shape& order);

}  // namespace trireme::detail
