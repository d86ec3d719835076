// ReduceLayout: the operands of a reduction as loops, for all backends.
#pragma once
#include "kernels/contracts/move.h"
#include "kernels/plans/strided_loop.h"

namespace trireme {

/// x as [outer, reduced, inner]. If kept and reduced axes alternate more often, regular is false and x is read at
/// kept.offset(output) + cut.offset(input of that output).
struct ReduceLayout {
  Index outer = 1, reduced = 1, inner = 1;
  bool regular = true;
  detail::StridedLoop<1> kept, cut;  ///< set if regular is false
  double scale = 1;                  ///< factor of the sum: 1, or 1 / reduced for the mean
};
/// Throws Error if x does not reduce to y.
ReduceLayout reduce_layout(const View& y, const View& x, ReduceKind);

/// Throws Error unless index is i64 with one number per row of x, and rows are not empty.
void check_argmax(const View& index, const View& x);
/// Throws Error unless sums is f64 with one number, or one number per row of slices.
void check_sum_squares(const View& sums, const View& slices);

}  // namespace trireme
