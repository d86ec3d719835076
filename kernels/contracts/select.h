// Kernels that compare elements, choose among them, and order them. Operands of one contract lie on one device. Throw
// Error for operands that do not fit.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

/// How Compare compares a with b; a comparison with NaN is false, but for not_equal.
enum class Comparison : std::uint8_t { equal, not_equal, less, less_equal };
/// What Scan does with the elements up to the one at hand.
enum class ScanKind : std::uint8_t { sum, product };
/// Options of Scan.
struct ScanOptions {
  ScanKind kind = ScanKind::sum;
  bool reverse = false;    ///< from the last element on
  bool exclusive = false;  ///< without the element at hand: 0 or 1 for the first
};

namespace kernel {

/// y = a ? b, true or false. a and b of one type, any, and of y's shape, or one element; y boolean.
struct Compare {
  static constexpr char name[] = "compare";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View a, View b, Comparison);
};
/// y = a where condition is true, else b (torch.where). condition boolean; a and b of y's type, any; each of y's shape,
/// or one element.
struct Where {
  static constexpr char name[] = "where";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View condition, View a, View b);
};
/// y[o, i, c] = x[o, ids[o, i, c], c] (torch.gather along the middle axis). x [O, N, C], y and ids [O, I, C], ids i64
/// in [0, N); x and y of one type, any. Throws Error naming an id outside of that (on CUDA when the host next waits).
struct Gather {
  static constexpr char name[] = "gather";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View x, View ids);
};
/// y[o, ids[o, i, c], c] += x[o, i, c], for one i after the other (torch.scatter_add); shapes as Gather's with x and y
/// exchanged, a floating type or i64.
struct ScatterAdd {
  static constexpr char name[] = "scatter_add";  ///< in errors, profiles and census()
  /// y is read and written.
  using Fn = void(View y, View x, View ids);
};
/// The first K of each row of x [R, N] in order, and where they are in x: values [R, K] of x's type (any), index i64
/// [R, K]. Equal elements stay in their order; a NaN is the largest (torch.sort, stable).
struct Sort {
  static constexpr char name[] = "sort";  ///< in errors, profiles and census()
  /// values and index are outputs.
  using Fn = void(View values, View index, View x, bool descending);
};
/// y[o, i, c] = sum or product of x[o, j, c], j <= i (torch.cumsum, cumprod). x and y [O, N, C] of one floating type or
/// i64; computed in f64 or i64.
struct Scan {
  static constexpr char name[] = "scan";  ///< in errors, profiles and census()
  /// y is the output; it may be x's block.
  using Fn = void(View y, View x, const ScanOptions&);
};

}  // namespace kernel
}  // namespace trireme
