// What kernels of all backends ask of their operands.
#pragma once
#include "kernels/view.h"

namespace trireme {

inline void check_same(const View& a, const View& b, std::string_view op) {
  check(a.shape == b.shape && a.dtype == b.dtype, op, "got {} {} beside {} {}: shapes and types must be equal", b.shape,
        b.dtype, a.shape, a.dtype);
}
/// Rows of a tensor seen as [rows, last axis].
inline Index row_count(const Shape& s) { return s.rank() ? s.product(0, s.rank() - 1) : 1; }
inline Index row_width(const Shape& s) { return s.rank() ? s[-1] : 1; }

}  // namespace trireme
