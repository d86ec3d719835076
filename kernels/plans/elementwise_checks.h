// Checks of the operands of elementwise kernels (kernels/contracts/elementwise.h), for all backends.
#pragma once
#include "kernels/contracts/elementwise.h"
#include "kernels/plans/checks.h"

namespace trireme {

/// Throws Error unless x and y have the same shape and type, and x is not View{}.
inline void check_axpby(const View& y, const View& x) {
  check_same(y, x, kernel::Axpby::name);
  check(x || x.numel() == 0, kernel::Axpby::name, "x is empty");
}
/// Throws Error for different shapes.
inline void check_cast(const View& y, const View& x) {
  check(y.shape == x.shape, kernel::Cast::name, "got {} for {}, expected equal shapes", x.shape, y.shape);
}
/// Throws Error unless x is u8 of y's shape [..., C], and scale and shift have C numbers.
inline void check_normalize(const View& y, const View& x, const View& scale, const View& shift) {
  constexpr auto op = kernel::Normalize::name;
  const Index channels = row_width(y.shape);
  check(y.shape == x.shape && x.dtype == DType::u8, op, "got {} {} for {}, expected u8 of the same shape", x.dtype,
        x.shape, y.shape);
  check(scale.numel() == channels && shift.numel() == channels, op, "got {} scales and {} shifts for {} channels",
        scale.numel(), shift.numel(), channels);
}
/// Returns the number of rows: x.shape[0], or 1 for a scalar. Throws Error for operands that do not fit, and for p
/// outside [0, 1].
inline Index check_dropout(const View& y, const View& x, const View& sample, const View& first, double p) {
  constexpr auto op = kernel::Dropout::name;
  check_same(y, x, op);
  check(p >= 0 && p <= 1, op, "got p = {}, expected 0 to 1", p);
  const Index rows = x.shape.rank() ? x.shape[0] : 1;
  check(!sample || (sample.dtype == DType::i64 && sample.numel() == rows), op,
        "got {} {} sample ids for {} rows, expected i64 [{}]", sample.dtype, sample.shape, rows, rows);
  check(!first || (first.dtype == DType::i64 && first.numel() == rows), op,
        "got {} {} first elements for {} rows, expected i64 [{}]", first.dtype, first.shape, rows, rows);
  return rows;
}

}  // namespace trireme
