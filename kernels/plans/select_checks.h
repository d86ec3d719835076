// Checks of the operands of kernels/contracts/select.h, for all backends.
#pragma once
#include "kernels/contracts/select.h"
#include "kernels/plans/checks.h"

namespace trireme {

/// Throws Error unless v has y's shape or one element.
inline void check_alike(const View& v, const View& y, std::string_view op) {
  check(v.shape == y.shape || v.numel() == 1, op, "got {} for {}, expected that shape, or one element", v.shape,
        y.shape);
}
inline void check_compare(const View& y, const View& a, const View& b) {
  constexpr auto op = kernel::Compare::name;
  check(y.dtype == DType::boolean && a.dtype == b.dtype, op,
        "got {}, {} and {}, expected bool, and the same type for both operands", y.dtype, a.dtype, b.dtype);
  check_alike(a, y, op);
  check_alike(b, y, op);
}
inline void check_where(const View& y, const View& condition, const View& a, const View& b) {
  constexpr auto op = kernel::Where::name;
  check(condition.dtype == DType::boolean && a.dtype == y.dtype && b.dtype == y.dtype, op,
        "got a condition of type {}, {} and {} for {}, expected bool, and y's type for both operands", condition.dtype,
        a.dtype, b.dtype, y.dtype);
  for (const View* v : {&condition, &a, &b}) check_alike(*v, y, op);
}
/// Checks few [O, I, C], ids [O, I, C] and all [O, N, C]: operands of Gather and ScatterAdd.
inline void check_gather(const View& few, const View& all, const View& ids, std::string_view op) {
  const bool fits = few.shape.rank() == 3 && all.shape.rank() == 3 && few.dtype == all.dtype &&
                    few.shape[0] == all.shape[0] && few.shape[2] == all.shape[2] && ids.dtype == DType::i64 &&
                    ids.shape == few.shape;
  check(fits, op,
        "operands {} {}, {} {} and ids {} {} do not fit, expected [O, I, C] and [O, N, C] of one type, and i64 ids [O, "
        "I, C]",
        few.dtype, few.shape, all.dtype, all.shape, ids.dtype, ids.shape);
}
inline void check_sort(const View& values, const View& index, const View& x) {
  const bool fits = x.shape.rank() == 2 && values.dtype == x.dtype && values.shape.rank() == 2 &&
                    values.shape[0] == x.shape[0] && values.shape[1] <= x.shape[1] && index.dtype == DType::i64 &&
                    index.shape == values.shape;
  check(fits, kernel::Sort::name, "cannot sort {} {} into {} {} and {} {}", x.dtype, x.shape, values.dtype,
        values.shape, index.dtype, index.shape);
}
inline void check_scan(const View& y, const View& x) {
  check_same(y, x, kernel::Scan::name);
  check(x.shape.rank() == 3, kernel::Scan::name, "got {}, expected [O, N, C]", x.shape);
}

/// Whether the relation c holds for a and b.
template <class T>
constexpr bool compares(Comparison c, T a, T b) {
  switch (c) {
    case Comparison::equal: return a == b;
    case Comparison::not_equal: return a != b;
    case Comparison::less: return a < b;
    case Comparison::less_equal: break;
  }
  return a <= b;
}
/// Whether a comes before b in a sorted row; NaN counts as the largest.
template <class T>
constexpr bool sorts_before(T a, T b, bool descending) {
  if (descending) return a > b || (a != a && b == b);
  return a < b || (b != b && a == a);
}

}  // namespace trireme
