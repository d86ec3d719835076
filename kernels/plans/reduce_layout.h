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

/// Throw Error when the results do not fit x.
void check_argmax(const View& index, const View& x);
void check_sum_squares(const View& sum);

}  // namespace trireme
