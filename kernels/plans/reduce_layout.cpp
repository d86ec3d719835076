#include "kernels/plans/reduce_layout.h"

#include "kernels/plans/checks.h"

namespace trireme {

ReduceLayout reduce_layout(const View& y, const View& x, ReduceKind kind) {
  bool ok = y.shape.rank() == x.shape.rank() && y.dtype == x.dtype;
  for (int i = 0; ok && i < x.shape.rank(); ++i) ok = y.shape[i] == x.shape[i] || y.shape[i] == 1;
  check(ok, kernel::Reduce::name, "cannot reduce {} {} to {} {}", x.dtype, x.shape, y.dtype, y.shape);
  check(is_float(x.dtype) || (x.dtype == DType::i64 && kind != ReduceKind::mean), kernel::Reduce::name,
        "got {}, expected a floating type (f32, f64, bf16, f16), or i64 for sum and max", x.dtype);
  ReduceLayout l;
  if (kind == ReduceKind::mean) l.scale = static_cast<double>(y.numel()) / static_cast<double>(x.numel());
  int stage = 0;  // 0: before, 1: within, 2: after the reduced axes
  for (int i = 0; i < x.shape.rank(); ++i) {
    if (x.shape[i] == 1) continue;
    const bool cut = y.shape[i] != x.shape[i];
    if (stage == 0 && cut) stage = 1;
    if (stage == 1 && !cut) stage = 2;
    if (stage == 2 && cut) l.regular = false;
    (stage == 0 ? l.outer : stage == 1 ? l.reduced : l.inner) *= x.shape[i];
  }
  if (stage == 0) std::swap(l.outer, l.inner);
  if (!l.regular)
    for (int i = x.shape.rank(); i-- > 0;)
      (y.shape[i] == x.shape[i] ? l.kept : l.cut).add(x.shape[i], {x.shape.product(i + 1, x.shape.rank())});
  return l;
}

void check_argmax(const View& index, const View& x) {
  constexpr auto op = kernel::ArgMax::name;
  const Index rows = row_count(x.shape);
  check(index.dtype == DType::i64 && index.numel() == rows, op, "got {} {} for {}, expected i64", index.dtype,
        index.shape, x.shape);
  check(rows == 0 || row_width(x.shape) > 0, op, "got {}, expected at least one element per row", x.shape);
}

void check_sum_squares(const View& sums, const View& slices) {
  constexpr auto op = kernel::SumSquares::name;
  const Index n = slices ? row_count(slices.shape) : 1;
  check(!slices || (slices.dtype == DType::i64 && slices.shape == Shape{n, 2}), op,
        "got {} {} for slices, expected i64 [n, 2]", slices.dtype, slices.shape);
  check(sums.dtype == DType::f64 && sums.numel() == n, op, "got {} {} for the sums, expected {} f64", sums.dtype,
        sums.shape, n);
}

}  // namespace trireme
