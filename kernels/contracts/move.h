// Kernels that move or sum elements: copies between dense blocks, reductions.
#pragma once
#include <span>

#include "kernels/core/view.h"

namespace trireme {
enum class ReduceKind : std::uint8_t { sum, mean, max };

namespace kernel {

/// Copies a box: to[to_at + i] = from[from_at + i] for i in [0, extent). Concat, split, pad and halo are this kernel.
struct CopyBox {
  static constexpr char name[] = "copy_box";
  using Fn = void(View to, const Shape& to_at, View from, const Shape& from_at, const Shape& extent);
};
/// y = x with axes reordered: y.shape[i] = x.shape[order[i]].
struct Permute {
  static constexpr char name[] = "permute";
  using Fn = void(View y, View x, const Shape& order);
};
/// y = x reduced over the axes where y's extent is 1 and x's is not (same rank). Sums are exact for integers in f32
/// range.
struct Reduce {
  static constexpr char name[] = "reduce";
  using Fn = void(View y, View x, ReduceKind);
};
/// index (i64, x.shape without its last axis) = position of the largest element along the last axis; the first of
/// equals.
struct ArgMax {
  static constexpr char name[] = "argmax";
  using Fn = void(View index, View x);
};
/// sum[0] = sum of squares of x, in f64.
struct SumSquares {
  static constexpr char name[] = "sum_squares";
  using Fn = void(View sum, View x);
};

}  // namespace kernel
}  // namespace trireme
