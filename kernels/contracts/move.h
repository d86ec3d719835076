// Kernels that move or sum elements: copies between dense blocks, reductions.
#pragma once
#include <span>

#include "kernels/core/view.h"

namespace trireme {
/// How Reduce joins elements: torch.sum, torch.mean, torch.amax.
enum class ReduceKind : std::uint8_t { sum, mean, max };

namespace kernel {

/// Copies a box: to[to_at + i] = from[from_at + i] for i in [0, extent). Concat, split, pad and halo are this kernel.
/// Any type and rank, both the same on both sides. Throws Error otherwise, and for a box that lies outside of either
/// block.
struct CopyBox {
  static constexpr char name[] = "copy_box";  ///< in errors, profiles and census()
  /// to is the output, outside of the box unchanged; to_at, from_at and extent have one number per axis.
  using Fn = void(View to, const Shape& to_at, View from, const Shape& from_at, const Shape& extent);
};
/// y = x with axes reordered: y.shape[i] = x.shape[order[i]] (torch.permute). Any type. Throws Error where order is no
/// permutation or y is of another shape.
struct Permute {
  static constexpr char name[] = "permute";  ///< in errors, profiles and census()
  /// y is the output; order holds each axis of x once.
  using Fn = void(View y, View x, const Shape& order);
};
/// y[o, i, c] = x[o, ids[i], c] (torch.index_select): x [O, N, C] and y [O, I, C] of one type, any; ids i64, I numbers
/// in [0, N). Throws Error naming an id outside of that (on CUDA when the host next waits for the device).
struct Take {
  static constexpr char name[] = "take";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View x, View ids);
};
/// dx[o, ids[i], c] += dy[o, i, c], for one i after the other: shapes as Take's, one floating type.
struct TakeBackward {
  static constexpr char name[] = "take_backward";  ///< in errors, profiles and census()
  /// dx is read and written.
  using Fn = void(View dx, View dy, View ids);
};
/// y = x repeated along new axes in front and axes of extent 1 (torch.broadcast_to). Any type, of both.
struct Expand {
  static constexpr char name[] = "expand";  ///< in errors, profiles and census()
  /// y is the output. Throws Error where x does not broadcast to y.
  using Fn = void(View y, View x);
};
/// y = x reduced over the axes where y's extent is 1 and x's is not; one rank and type, floating or i64, y's elements
/// each of at least one of x's. Short stretches are summed in f32 or f64, the stretches in f64; a NaN is the largest.
/// Of i64 there is no mean.
struct Reduce {
  static constexpr char name[] = "reduce";  ///< in errors, profiles and census()
  /// y is the output. Throws Error where x does not reduce to y.
  using Fn = void(View y, View x, ReduceKind);
};
/// index (i64, x.shape without its last axis) = position of the largest element along the last axis; the first of
/// equals; a NaN is the largest (torch.argmax). Throws Error where that axis has no elements.
struct ArgMax {
  static constexpr char name[] = "argmax";  ///< in errors, profiles and census()
  /// index is the output.
  using Fn = void(View index, View x);
};
/// sums[i] (f64 [n]) = sum of squares of the elements slices[i, 0] to slices[i, 1] of x (any shape, a floating type), in
/// memory's order, without the last; summed in f64. slices: i64 [n, 2] on x's device, its numbers in [0, x.numel()] and
/// not falling, which is not checked; none: all of x is one sum.
struct SumSquares {
  static constexpr char name[] = "sum_squares";  ///< in errors, profiles and census()
  /// sums is the output.
  using Fn = void(View sums, View x, View slices);
};

}  // namespace kernel
}  // namespace trireme
