// How reductions see their operands, on all backends.
#pragma once
#include "kernels/contracts/move.h"
#include "kernels/plans/strided_loop.h"

namespace trireme {

/// x as [outer, reduced, inner]; regular is false when kept and reduced axes alternate more often: then x is read at
/// kept.offset(output) + cut.offset(input of that output).
struct ReduceLayout {
  Index outer = 1, reduced = 1, inner = 1;
  bool regular = true;
  detail::StridedLoop<1> kept, cut;  ///< set unless regular
  double scale = 1;                  ///< of the sum: that of the mean is 1 / reduced
};
/// Throws Error when x cannot be reduced to y.
ReduceLayout reduce_layout(const View& y, const View& x, ReduceKind);

/// Throws Error unless index is i64 with one number per row of x, and rows have elements.
void check_argmax(const View& index, const View& x);
/// Throws Error unless sums is f64 with one number, or one for each row of slices.
void check_sum_squares(const View& sums, const View& slices);

}  // namespace trireme
