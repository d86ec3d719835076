// Checks of operands that many kernels share, for all backends.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

/// Throws Error naming op unless a and b have the same shape and type.
inline void check_same(const View& a, const View& b, std::string_view op) {
  check(a.shape == b.shape && a.dtype == b.dtype, op, "got {} {} and {} {}, expected equal types and shapes", b.shape,
        b.dtype, a.shape, a.dtype);
}
/// Throws Error naming op unless sum is [C] for x [..., C], of x's type, or f32 if x is bf16 or f16.
inline void check_sum_rows(const View& sum, const View& x, std::string_view op) {
  check(x.shape.rank() > 0 && sum.shape == Shape{x.shape[-1]}, op, "bias gradient is {}, the output gradient is {}",
        sum.shape, x.shape);
  const bool fits = sum.dtype == x.dtype || (is_half(x.dtype) && sum.dtype == DType::f32);
  check(fits, op, "bias gradient is {}, the output gradient is {}", sum.dtype, x.dtype);
}
/// Number of rows of a tensor viewed as [rows, last axis]; 1 for a scalar.
inline Index row_count(const Shape& s) { return s.rank() ? s.product(0, s.rank() - 1) : 1; }
/// Extent of the last axis; 1 for a scalar.
inline Index row_width(const Shape& s) { return s.rank() ? s[-1] : 1; }

}  // namespace trireme
