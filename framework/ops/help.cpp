#include "framework/ops/help.h"

#include "kernels/formulas/pointwise.h"

namespace trireme::ops {

void check_float(const char* op, const Tensor& x) {
  check(x.defined(), op, "the input is undefined");
  check(is_float(x.dtype()), op, "wants a floating type (f32, f64, bf16, f16), got {}: convert it with to(DType)",
        x.dtype());
}
void check_same_type(const char* op, const Tensor& a, const Tensor& b) {
  check(a && b, op, "an operand is undefined");
  check(a.dtype() == b.dtype(), op, "operands are {} and {}: convert one with to(DType)", a.dtype(), b.dtype());
}
void check_channels(const char* op, const char* what, const Tensor& t, Index channels, bool optional) {
  if (!t && optional) return;
  check(t.defined(), op, "{} is undefined", what);
  check(t.rank() == 1 && t.dim(0) == channels, op, "{} is {}, expected [{}]", what, t.shape(), channels);
}

void sum_to(const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  if (from.numel() == 0) return launch<kernel::Fill>(to, 0.0);
  Shape shape;
  for (int i = to.rank(); i < from.rank(); ++i) shape.push_back(1);
  for (Index extent : to.shape()) shape.push_back(extent);
  launch<kernel::Reduce>(shaped(to, shape), from, ReduceKind::sum);
}

Tensor record_relu(Tensor y, const Tensor& before) {
  if (!needs_record("relu", y, {&before})) return y;
  return record("relu", y, {before}, [y = SavedTensor(y.detach())](const Tensor& dy, Gradients& g) {
    const auto mask = [&](const Tensor& dx) {
      launch<kernel::MapBackward<pointwise::Relu>>(dx, dy, View{}, y, pointwise::Relu{});
    };
    if (!is_uniquely_owned(dy)) return write_grad(g, 0, mask);
    mask(dy);
    g.set_grad(0, dy);
  });
}

}  // namespace trireme::ops
