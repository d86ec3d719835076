// Reductions: over all elements, and over some axes.
#include <algorithm>
#include <limits>

#include "framework/autograd/step_context.h"
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "framework/ops/slopes.h"
#include "framework/ops/unary.h"
#include "framework/tensor/batch.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

/// dy broadcast to dx's shape, times factor.
void broadcast_scaled(const Tensor& dx, const Tensor& dy, double factor) {
  ops::zip_into<pointwise::Mul>(dx, dy, Tensor::scalar(factor, dy.dtype(), dy.device()));
}
}  // namespace

Tensor sum(const Tensor& x) {
  check(x.defined(), "sum", "the input is undefined");
  if (!is_float(x.dtype()) && x.dtype() != DType::i64) return sum(x.to(DType::i64));
  if (x.shard_spec())
    return ops::on_blocks({.op = "sum", .dims = "n.. ->", .sums = "n"}, x, [](const Tensor& t) { return sum(t); });
  Tensor y = Tensor::empty({}, x.dtype(), x.device());
  if (x.numel() == 0)
    launch<kernel::Fill>(y, 0.0);
  else
    launch<kernel::Reduce>(ops::shaped(y, {1}), ops::shaped(x, {x.numel()}), ReduceKind::sum);
  if (!needs_record("sum", y, {&x})) return y;
  return record("sum", std::move(y), {x}, {}, ops::twice([](const Tensor& dy, Gradients& g) {
                  if (g.records()) return g.set_grad(0, expand(dy, g.input(0).shape));
                  write_grad(g, 0, [&](const Tensor& dx) { broadcast_scaled(dx, dy, 1); });
                }));
}
namespace {
/// A mean over only this rank's rows would make the loss depend on the number of ranks.
void refuse_part_of_batch(const Tensor& x) {
  const BatchContext* batch = x.batch();
  check(!batch || !batch->is_share() || !(StepContext::current().in_loss || is_grad_recorded({&x, 1})), "mean",
        "the input is part of a global batch of {} rows, whose rest is on other ranks or micro-batches: use "
        "batch_mean(), which divides by the rows of all",
        batch ? batch->global_batch : 0);
}
/// Whether the first axis is the rows of x's batch, or several for each.
bool has_rows_first(const Tensor& x) {
  const BatchContext* batch = x.batch();
  const Index rows = batch && batch->samples ? batch->samples.numel() : 0;
  return x.rank() > 0 && batch && (rows == 0 || x.dim(0) % rows == 0);
}
}  // namespace

void ops::refuse_part_of_batch(const char* op, const Tensor& x, int axis) {
  const BatchContext* batch = x.batch();
  if (axis != 0 || !batch || !batch->is_share() || !has_rows_first(x)) return;
  check(!StepContext::current().in_loss && !is_grad_recorded({&x, 1}), op,
        "x is {}, and its first axis is part of a global batch of {} rows, whose rest is on other ranks or "
        "micro-batches: combine values within a row, or train in one process without micro-batches",
        x.shape(), batch->global_batch);
}

Tensor mean(const Tensor& x) {
  ops::check_float("mean", x);
  check(x.defined() && x.numel() > 0, "mean", "the input has no elements, expected at least one");
  refuse_part_of_batch(x);
  const double share = 1 / static_cast<double>(ops::global_shape(x).numel());
  return ops::as_one_op("mean", {&x}, {}, [&] {
    // A sum may exceed the largest f16 although the mean does not.
    if (x.dtype() == DType::f16) return scale(sum(x.to(DType::f32)), share).to(DType::f16);
    return scale(sum(x), share);
  });
}

namespace {
/// reduce() of x that ranks divide: sums are added over the ranks, a maximum needs whole axes.
Tensor divided_reduce(const Tensor& x, ReduceKind kind, const std::vector<int>& axes) {
  ops::Factors f = ops::same_dims({x}, {});
  for (int axis : axes) {
    axis = ops::axis_of("reduce", axis, x.rank());
    if (axis == 0 && kind == ReduceKind::mean && has_rows_first(x)) refuse_part_of_batch(x);
    const auto d = static_cast<std::size_t>(axis);
    f.factors[d].whole = kind == ReduceKind::max;
    f.factors[d].sums = true;
    f.out[d] = {};
    f.result[axis] = 1;
  }
  const ops::Placed p = ops::place("reduce", f, {x});
  if (p.sum() == 0 || kind != ReduceKind::mean) return p.put(reduce(p[0], kind, axes));
  const Index per_cell = f.result.numel() > 0 ? ops::global_shape(x).numel() / f.result.numel() : 1;
  return scale(p.put(reduce(p[0], ReduceKind::sum, axes)), 1 / static_cast<double>(per_cell));
}
}  // namespace

Tensor reduce(const Tensor& x, ReduceKind kind, const std::vector<int>& axes) {
  check(x.defined(), "reduce", "the input is undefined");
  if (x.shard_spec()) return divided_reduce(x, kind, axes);
  Shape shape = x.shape();
  for (int axis : axes) {
    axis = ops::axis_of("reduce", axis, x.rank());
    if (axis == 0 && kind == ReduceKind::mean && has_rows_first(x)) refuse_part_of_batch(x);
    if (kind == ReduceKind::max) ops::refuse_part_of_batch("max", x, axis);
    shape[axis] = 1;
  }
  const Index per_cell = shape.numel() > 0 ? x.numel() / shape.numel() : 1;
  check(per_cell > 0 || kind == ReduceKind::sum, "reduce", "cannot take the mean or max of no elements: {} to {}",
        x.shape(), shape);
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  if (per_cell == 0)
    launch<kernel::Fill>(y, 0.0);
  else
    launch<kernel::Reduce>(y, x, kind);
  if (!needs_record("reduce", y, {&x})) return y;
  if (kind == ReduceKind::max) {
    const Tensor kept = y.detach();
    return record("reduce", std::move(y), {x}, kind,
                  ops::twice([x = SavedTensor(x), y = SavedTensor(kept)](const Tensor& dy, Gradients& g) {
                    if (g.records()) {
                      const Tensor share = Tensor::like(x.get());
                      ops::zip_into<pointwise::MaximumShare>(share, x, y);
                      return g.set_grad(0, dy / ops::summed_to(share, dy.shape()) * share);
                    }
                    // All cells with the largest value share equally, as in torch.amax: MaximumShare is 1/2 there (a
                    // tie of x and y), else 0.
                    write_grad(g, 0, [&](const Tensor& dx) {
                      ops::zip_into<pointwise::MaximumShare>(dx, x, y);
                      const Tensor each = Tensor::like(y.get());
                      ops::sum_to(each, dx);
                      ops::zip_into<pointwise::Div>(each, dy, each);
                      ops::zip_into<pointwise::Mul>(dx, dx, each);
                    });
                  }));
  }
  const double factor = kind == ReduceKind::mean ? 1 / static_cast<double>(per_cell) : 1;
  return record("reduce", std::move(y), {x}, kind, ops::twice([factor](const Tensor& dy, Gradients& g) {
                  if (g.records()) return g.set_grad(0, expand(scale(dy, factor), g.input(0).shape));
                  write_grad(g, 0, [&](const Tensor& dx) { broadcast_scaled(dx, dy, factor); });
                }));
}

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
