// Contracts of operations that move or sum elements: copies between dense blocks, and reductions.
#pragma once
#include <span>

#include "kernels/core/view.h"

namespace trireme {
/// How Reduce combines elements: torch.sum, torch.mean, torch.amax.
enum class ReduceKind : std::uint8_t { sum, mean, max };

namespace kernel {

/// Copies a box: to[to_at + i] = from[from_at + i] for i in [0, extent). Concatenation, split, padding and halos are
/// this kernel. Both blocks have the same type and rank, any. Throws Error otherwise, and for a box that is not inside
/// both blocks.
struct CopyBox {
  static constexpr char name[] = "copy_box";  ///< in errors, profiles and census()
  /// to is the output, unchanged outside of the box; to_at, from_at and extent have one number per axis.
  using Fn = void(View to, const Shape& to_at, View from, const Shape& from_at, const Shape& extent);
  /// Bytes of the box, read and written.
  static double bytes(const View& to, const Shape&, const View&, const Shape&, const Shape& extent) {
    return 2.0 * static_cast<double>(extent.numel() * size_of(to.dtype));
  }
};
/// y = x with axes permuted: y.shape[i] = x.shape[order[i]] (torch.permute). Any type. Throws Error if order is no
/// permutation or y has another shape.
struct Permute {
  static constexpr char name[] = "permute";  ///< in errors, profiles and census()
  /// y is the output; order contains each axis of x once.
  using Fn = void(View y, View x, const Shape& order);
};
/// y[o, i, c] = x[o, ids[i], c] (torch.index_select): x [O, N, C] and y [O, I, C] of one type, any, or f32 and rounded
/// to bf16 or f16; ids i64 [I] in [0, N). Throws Error naming another id (on CUDA when the host waits for the device).
struct Take {
  static constexpr char name[] = "take";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View x, View ids);
};
/// dx[o, ids[i], c] += dy[o, i, c], in the order of i; shapes as in Take, one floating type, or dx f32 and dy half.
struct TakeBackward {
  static constexpr char name[] = "take_backward";  ///< in errors, profiles and census()
  /// dx is read and written.
  using Fn = void(View dx, View dy, View ids);
};
/// y = x broadcast along new leading axes and axes of extent 1 (torch.broadcast_to). The same type, any.
struct Expand {
  static constexpr char name[] = "expand";  ///< in errors, profiles and census()
  /// y is the output. Throws Error if x does not broadcast to y.
  using Fn = void(View y, View x);
};
/// y = x reduced over the axes where y's extent is 1 and x's is not. x and y have the same rank and type, floating or
/// i64 (no mean of i64). Each element of y reduces at least one of x. Short runs are summed in f32 or f64, and the runs
/// in f64. NaN counts as the largest number.
struct Reduce {
  static constexpr char name[] = "reduce";  ///< in errors, profiles and census()
  /// y is the output. Throws Error if x does not reduce to y.
  using Fn = void(View y, View x, ReduceKind);
};
/// index (i64, x.shape without its last axis) = position of the largest element along the last axis; the first of equal
/// ones. NaN counts as the largest (torch.argmax). Throws Error if the last axis is empty.
struct ArgMax {
  static constexpr char name[] = "argmax";  ///< in errors, profiles and census()
  /// index is the output.
  using Fn = void(View index, View x);
};
/// sums[i] (f64 [n]) = sum of squares of the elements [slices[i, 0], slices[i, 1]) of x in memory order, in f64. x: any
/// shape, a floating type. slices: i64 [n, 2] on x's device, with ascending numbers in [0, x.numel()], which is not
/// checked. Without slices there is one sum, of all elements.
struct SumSquares {
  static constexpr char name[] = "sum_squares";  ///< in errors, profiles and census()
  /// sums is the output.
  using Fn = void(View sums, View x, View slices);
};

}  // namespace kernel
}  // namespace trireme
