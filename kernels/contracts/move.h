// Kernels that move or sum elements: copies between dense blocks, reductions.
#pragma once
#include <span>

#include "kernels/core/view.h"

namespace trireme {
enum class ReduceKind : std::uint8_t { sum, mean, max };

namespace kernel {

/// Copies a box: to[to_at + i] = from[from_at + i] for i in [0, extent). Concat, split, pad and halo are this kernel.
/// Any type, one rank. Throws Error for a box that lies outside of either block.
struct CopyBox {
  static constexpr char name[] = "copy_box";
  using Fn = void(View to, const Shape& to_at, View from, const Shape& from_at, const Shape& extent);
};
/// y = x with axes reordered: y.shape[i] = x.shape[order[i]] (torch.permute). Any type. Throws Error where order is no
/// permutation or y is of another shape.
struct Permute {
  static constexpr char name[] = "permute";
  using Fn = void(View y, View x, const Shape& order);
};
/// y = x reduced over the axes where y's extent is 1 and x's is not; one rank and floating type, y's elements each of
/// at least one of x's. Sums are exact for integers in f32 range; a NaN is the largest.
struct Reduce {
  static constexpr char name[] = "reduce";
  using Fn = void(View y, View x, ReduceKind);
};
/// index (i64, x.shape without its last axis) = position of the largest element along the last axis; the first of
/// equals; a NaN is the largest (torch.argmax). Throws Error where that axis has no elements.
struct ArgMax {
  static constexpr char name[] = "argmax";
  using Fn = void(View index, View x);
};
/// sum[0] (f64) = sum of squares of x, any shape, a floating type; summed in f64.
struct SumSquares {
  static constexpr char name[] = "sum_squares";
  using Fn = void(View sum, View x);
};

}  // namespace kernel
}  // namespace trireme
