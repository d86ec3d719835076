// What kernels of all backends ask of their operands.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

/// Throws Error naming op unless a and b have one shape and one type.
inline void check_same(const View& a, const View& b, std::string_view op) {
  check(a.shape == b.shape && a.dtype == b.dtype, op, "got {} {} beside {} {}: shapes and types must be equal", b.shape,
        b.dtype, a.shape, a.dtype);
}
/// Throws Error naming op unless sum is [C] for x [..., C], of x's type, or f32 beside the types of two bytes.
inline void check_sum_rows(const View& sum, const View& x, std::string_view op) {
  check(x.shape.rank() > 0 && sum.shape == Shape{x.shape[-1]}, op, "bias gradient is {}, the output gradient is {}",
        sum.shape, x.shape);
  const bool fits = sum.dtype == x.dtype || (is_half(x.dtype) && sum.dtype == DType::f32);
  check(fits, op, "bias gradient is {}, the output gradient is {}", sum.dtype, x.dtype);
}
/// Rows of a tensor seen as [rows, last axis]; 1 for a scalar.
inline Index row_count(const Shape& s) { return s.rank() ? s.product(0, s.rank() - 1) : 1; }
/// Extent of the last axis; 1 for a scalar.
inline Index row_width(const Shape& s) { return s.rank() ? s[-1] : 1; }

}  // namespace trireme
