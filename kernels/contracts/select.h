// Contracts of operations that compare, select and sort elements. Operands of one call are on the same device. Kernels
// throw Error for operands that do not fit.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

/// The relation of Compare. Comparisons with NaN are false, except not_equal.
enum class Comparison : std::uint8_t { equal, not_equal, less, less_equal };
/// How Scan combines elements.
enum class ScanKind : std::uint8_t { sum, product };
/// Options of Scan.
struct ScanOptions {
  ScanKind kind = ScanKind::sum;  ///< sum or product
  bool reverse = false;           ///< scans from the last element to the first
  bool exclusive = false;         ///< leaves out the current element: the first result is 0 (sum) or 1 (product)
};

namespace kernel {

/// y = whether the relation holds for a and b. y is boolean; a and b have the same type, any, and y's shape or one
/// element.
struct Compare {
  static constexpr char name[] = "compare";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View a, View b, Comparison);
};
/// y = a where condition is true, else b (torch.where). condition is boolean; a and b have y's type, any. Each has y's
/// shape or one element.
struct Where {
  static constexpr char name[] = "where";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View condition, View a, View b);
};
/// y[o, i, c] = x[o, ids[o, i, c], c] (torch.gather along the middle axis). x [O, N, C], y and ids [O, I, C]; ids i64
/// in [0, N); x and y of the same type, any. Throws Error naming an id outside of the range (on CUDA when the host next
/// waits).
struct Gather {
  static constexpr char name[] = "gather";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View x, View ids);
};
/// y[o, ids[o, i, c], c] += x[o, i, c], in the order of i (torch.scatter_add). y [O, N, C], x and ids [O, I, C]; x and
/// y of the same floating type or i64.
struct ScatterAdd {
  static constexpr char name[] = "scatter_add";  ///< in errors, profiles and census()
  /// y is read and written.
  using Fn = void(View y, View x, View ids);
};
/// The first K elements of each row of x [R, N] in sorted order, and their positions in x: values [R, K] of x's type
/// (any), index i64 [R, K]. The sort is stable; NaN counts as the largest (torch.sort).
struct Sort {
  static constexpr char name[] = "sort";  ///< in errors, profiles and census()
  /// values and index are outputs.
  using Fn = void(View values, View index, View x, bool descending);
};
/// y[o, i, c] = sum or product of x[o, j, c] over j <= i (torch.cumsum, cumprod). x and y [O, N, C] of the same
/// floating type or i64; computed in f64 or i64.
struct Scan {
  static constexpr char name[] = "scan";  ///< in errors, profiles and census()
  /// y is the output; it may be the same block as x.
  using Fn = void(View y, View x, const ScanOptions&);
};

}  // namespace kernel
}  // namespace trireme
