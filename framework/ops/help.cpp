#include "framework/ops/help.h"

#include <cmath>

#include "framework/ops/ops.h"
#include "framework/ops/select.h"
#include "kernels/formulas/pointwise.h"

namespace trireme::ops {

void check_float(const char* op, const Tensor& x) {
  check(x.defined(), op, "the input is undefined");
  check(is_float(x.dtype()), op, "got {}, expected a floating type (f32, f64, bf16, f16): convert it with to(DType)",
        x.dtype());
}
void check_same_type(const char* op, const Tensor& a, const Tensor& b) {
  check(a && b, op, "an operand is undefined");
  check(a.dtype() == b.dtype(), op, "operands are {} and {}: convert one with to(DType)", a.dtype(), b.dtype());
}
void check_channels(const char* op, const char* what, const Tensor& t, Index channels, bool optional) {
  if (!t && optional) return;
  check(t.defined(), op, "{} is undefined", what);
  check(t.rank() == 1 && t.dim(0) == channels, op,
        "{} is {}, expected [{}], the extent of the last axis (images are N,H,W,C)", what, t.shape(), channels);
}

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const int rank = std::max(a.rank(), b.rank());
  Shape y;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const Index ea = ia < 0 ? 1 : a[ia], eb = ib < 0 ? 1 : b[ib];
    check(ea == eb || ea == 1 || eb == 1, op, "{} and {} do not broadcast: extents must agree or be 1", a, b);
    y.push_back(ea == 1 ? eb : ea);
  }
  return y;
}
int axis_of(const char* op, int axis, int rank) {
  check(axis >= -rank && axis < rank, op, "there is no axis {}, the tensor has {} axes", axis, rank);
  return axis < 0 ? axis + rank : axis;
}
Tensor number_like(const char* op, const Tensor& x, double number) {
  check(x.defined(), op, "the input is undefined");
  check(is_float(x.dtype()) || number == std::floor(number), op, "{} is no {}: convert the tensor with to(DType)",
        number, x.dtype());
  return constant(Tensor::scalar(number, x.dtype(), x.device()));
}
Tensor constant(const Tensor& t) {
  return record("constant", t, {}, t, [](const Tensor&, Gradients&) {});
}

void sum_to(const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  if (from.numel() == 0) return launch<kernel::Fill>(to, 0.0);
  Shape shape;
  for (int i = to.rank(); i < from.rank(); ++i) shape.push_back(1);
  for (Index extent : to.shape()) shape.push_back(extent);
  launch<kernel::Reduce>(shaped(to, shape), from, ReduceKind::sum);
}

Tensor summed_to(const Tensor& t, const Shape& shape) {
  if (t.shape() == shape) return t;
  std::vector<int> axes;
  const int more = t.rank() - shape.rank();
  for (int i = 0; i < t.rank(); ++i)
    if (i < more || (shape[i - more] == 1 && t.dim(i) != 1)) axes.push_back(i);
  return reduce(t, ReduceKind::sum, axes).reshape(shape);
}
Tensor padded(const Tensor& t, int axis, Index begin, const Shape& shape) {
  Shape before = t.shape(), after = t.shape();
  for (int i = 0; i < t.rank(); ++i) before[i] = after[i] = 0;
  before[axis] = begin;
  after[axis] = shape[axis] - begin - t.dim(axis);
  return pad(t, before, after, 0.0);
}
Tensor linear_map(const char* op, const Tensor& x, const Gradients::InputType& out, LinearMap map,
                  LinearMap transposed) {
  Tensor y = Tensor::empty(out.shape, out.dtype, out.device);
  map(y, x);
  if (!needs_record(op, y, {&x})) return y;
  return record(op, std::move(y), {x}, {}, twice([=](const Tensor& dy, Gradients& g) {
                  if (!g.records()) return write_grad(g, 0, [&](const Tensor& dx) { transposed(dx, dy); });
                  g.set_grad(0, linear_map(op, dy, g.input(0), transposed, map));
                }));
}

Tensor record_relu(Tensor y, const Tensor& before) {
  if (!needs_record("relu", y, {&before})) return y;
  return record("relu", y, {before}, {}, twice([y = SavedTensor(y.detach())](const Tensor& dy, Gradients& g) {
                  if (g.records()) return g.set_grad(0, dy * (y.get() > 0).to(dy.dtype()));
                  const auto mask = [&](const Tensor& dx) {
                    launch<kernel::MapBackward<pointwise::Relu>>(dx, dy, View{}, y, pointwise::Relu{});
                  };
                  if (!is_uniquely_owned(dy)) return write_grad(g, 0, mask);
                  mask(dy);
                  g.set_grad(0, dy);
                }));
}

}  // namespace trireme::ops
