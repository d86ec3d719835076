// Reductions over some axes, of the kernels sum, mean and max.
#include <algorithm>
#include <limits>

#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/unary.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

std::vector<int> all_axes(const Tensor& x) {
  std::vector<int> axes(static_cast<std::size_t>(x.rank()));
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
  return axes;
}
/// y without its reduced axes (extent 1), unless they are kept.
Tensor without(const Tensor& y, const std::vector<int>& axes, bool keep) {
  if (keep) return y;
  std::vector<bool> gone(static_cast<std::size_t>(y.rank()));
  for (const int axis : axes) gone[static_cast<std::size_t>(axis < 0 ? axis + y.rank() : axis)] = true;
  Shape shape;
  for (int i = 0; i < y.rank(); ++i)
    if (!gone[static_cast<std::size_t>(i)]) shape.push_back(y.global_shape()[i]);
  return y.reshape(shape);
}
Tensor root_of_squares(const Tensor& x) { return ops::is_traced() ? sqrt(x) : ops::unary<pointwise::RootOfSquares>(x); }
/// Integers are reduced as i64.
Tensor reduced(const Tensor& x, ReduceKind kind, const std::vector<int>& axes, bool keep) {
  if (x && !is_float(x.dtype()) && kind != ReduceKind::mean && x.dtype() != DType::i64) {
    const Tensor y = reduced(x.to(DType::i64), kind, axes, keep);
    return kind == ReduceKind::max ? y.to(x.dtype()) : y;
  }
  return without(reduce(x, kind, axes), axes, keep);
}

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& axes, bool keep) { return reduced(x, ReduceKind::sum, axes, keep); }
Tensor mean(const Tensor& x, const std::vector<int>& axes, bool keep) {
  return reduced(x, ReduceKind::mean, axes, keep);
}
Tensor amax(const Tensor& x, const std::vector<int>& axes, bool keep) {
  return reduced(x, ReduceKind::max, axes, keep);
}
Tensor amin(const Tensor& x, const std::vector<int>& axes, bool keep) {
  return ops::as_one_op("amin", {&x}, ops::ReducedAxes{axes, keep}, [&] { return neg(amax(neg(x), axes, keep)); });
}
Tensor max(const Tensor& x) { return amax(x, all_axes(x)); }
Tensor min(const Tensor& x) { return amin(x, all_axes(x)); }

Tensor var(const Tensor& x, const std::vector<int>& axes, bool keep, double correction) {
  const Tensor squares = sum(square(x - reduce(x, ReduceKind::mean, axes)), axes, keep);
  if (squares.numel() == 0) return squares;
  const auto count =
      static_cast<double>(ops::global_shape(x).numel() / std::max<Index>(1, ops::global_shape(squares).numel()));
  check(count > correction, "var", "got {} elements and correction {}, expected more elements than the correction",
        count, correction);
  return squares / (count - correction);
}
Tensor standard_deviation(const Tensor& x, const std::vector<int>& axes, bool keep, double correction) {
  return root_of_squares(var(x, axes, keep, correction));
}
Tensor norm(const Tensor& x, const std::vector<int>& axes, bool keep) {
  return ops::as_one_op("norm", {&x}, ops::ReducedAxes{axes, keep},
                        [&] { return root_of_squares(sum(square(x), axes, keep)); });
}
Tensor norm(const Tensor& x) { return norm(x, all_axes(x)); }

Tensor logsumexp(const Tensor& x, const std::vector<int>& axes, bool keep) {
  // An infinite maximum makes x - maximum undefined: the largest finite f32 works too.
  constexpr double most = std::numeric_limits<float>::max();
  if (x)
    for (const int axis : axes) ops::refuse_part_of_batch("logsumexp", x, ops::axis_of("logsumexp", axis, x.rank()));
  return ops::as_one_op("logsumexp", {&x}, ops::ReducedAxes{axes, keep}, [&] {
    const Tensor maximum = clamp(reduce(x.detach(), ReduceKind::max, axes), -most, most);
    return without(log(reduce(exp(x - maximum), ReduceKind::sum, axes)) + maximum, axes, keep);
  });
}

}  // namespace trireme
