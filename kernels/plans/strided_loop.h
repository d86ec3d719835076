// StridedLoop: a loop over the elements of a tensor that steps through several dense blocks at once (as PyTorch's
// TensorIterator). Kernels that broadcast, permute or copy a box are planned with it, on all backends.
#pragma once
#include <array>

#include "kernels/core/view.h"

namespace trireme::detail {

/// Axes are innermost first, without axes of extent 1. Adjacent axes with uniform steps in every block are merged.
/// Steps are in elements.
template <int blocks>
struct StridedLoop {
  using Steps = std::array<Index, blocks>;
  int rank = 0;
  Index extent[Shape::max_rank];  // the first `rank` of each are set
  Steps step[Shape::max_rank];    // step[axis][block]

  /// Adds an outermost axis.
  void add(Index n, const Steps& s) {
    if (n == 1) return;
    bool even = rank > 0;
    for (int b = 0; even && b < blocks; ++b) even = s[b] == step[rank - 1][b] * extent[rank - 1];
    if (even)
      extent[rank - 1] *= n;
    else {
      extent[rank] = n;
      step[rank++] = s;
    }
  }
  void erase(int axis) {
    --rank;
    for (int i = axis; i < rank; ++i) {
      extent[i] = extent[i + 1];
      step[i] = step[i + 1];
    }
  }
  /// Number of iterations.
  Index count() const {
    Index n = 1;
    for (int i = 0; i < rank; ++i) n *= extent[i];
    return n;
  }
  /// Offset in each block of iteration k (row-major).
  Steps offset(Index k) const {
    Steps at{};
    for (int i = 0; i < rank; k /= extent[i++])
      for (int b = 0; b < blocks; ++b) at[b] += k % extent[i] * step[i][b];
    return at;
  }
};

/// A loop over y, through a and b. Steps are 0 along broadcast axes, so the innermost steps are 0 or 1. It has at least
/// one axis. Throws Error naming op if a and b do not broadcast to y by NumPy's rules, or have another type.
StridedLoop<2> plan_broadcast(const View& y, const View& a, const View& b, std::string_view op);

/// A loop over a box, through `to` and `from`. Each iteration copies a contiguous run of elements; the run is 0 if the
/// box is empty.
struct BoxCopy {
  Index to_first = 0, from_first = 0, run = 0;
  StridedLoop<2> outer;
};
/// Throws Error for a box that is not inside both blocks, and for different ranks or types.
BoxCopy plan_copy_box(const View& to, const Shape& to_at, const View& from, const Shape& from_at, const Shape& extent);

/// Throws Error naming op unless few [O, I, C] and all [O, N, C] have types of kernel::Take and ids are I numbers of
/// type i64.
void check_take(const View& few, const View& all, const View& ids, std::string_view op);

/// A loop over y, through y and x. Steps of x are 0 along broadcast axes. Throws Error if x does not broadcast to y, or
/// has another type.
StridedLoop<2> plan_expand(const View& y, const View& x);

/// A loop over y, through y and x. Throws Error unless y is x permuted by order.
StridedLoop<2> plan_permute(const View& y, const View& x, const Shape& order);

}  // namespace trireme::detail
