// Unary elementwise ops. A formula (kernels/formulas/pointwise.h) states what its slope reads, and only that is saved.
#include "framework/ops/ops.h"
#include "framework/ops/slopes.h"
#include "framework/ops/unary.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
using ops::unary;

Tensor relu(const Tensor& x) { return unary<pointwise::Relu>(x); }
Tensor leaky_relu(const Tensor& x) { return leaky_relu(x, 0.01); }
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  check(negative_slope >= 0, "leaky_relu", "negative_slope is {}, expected at least 0", negative_slope);
  return unary(x, pointwise::LeakyRelu{negative_slope});
}
Tensor elu(const Tensor& x) { return elu(x, 1); }
Tensor elu(const Tensor& x, double alpha) {
  check(alpha >= 0, "elu", "alpha is {}, expected at least 0", alpha);
  return unary(x, pointwise::Elu{alpha});
}
Tensor gelu(const Tensor& x) { return unary<pointwise::Gelu>(x); }
Tensor silu(const Tensor& x) { return unary<pointwise::Silu>(x); }
Tensor hardswish(const Tensor& x) { return unary<pointwise::Hardswish>(x); }
Tensor hardsigmoid(const Tensor& x) { return unary<pointwise::Hardsigmoid>(x); }
Tensor hardtanh(const Tensor& x, double low, double high) {
  check(low <= high, "hardtanh", "bounds are {} and {}, expected the lower one first", low, high);
  return unary(x, pointwise::Hardtanh{low, high});
}
Tensor relu6(const Tensor& x) { return hardtanh(x, 0, 6); }
Tensor clamp(const Tensor& x, double low, double high) {
  check(low <= high, "clamp", "bounds are {} and {}, expected the lower one first", low, high);
  return unary(x, pointwise::Clamp{low, high});
}
Tensor sigmoid(const Tensor& x) { return unary<pointwise::Sigmoid>(x); }
Tensor tanh(const Tensor& x) { return unary<pointwise::Tanh>(x); }
Tensor softplus(const Tensor& x) { return softplus(x, 1); }
Tensor softplus(const Tensor& x, double beta) {
  check(beta > 0, "softplus", "beta is {}, expected more than 0", beta);
  return unary(x, pointwise::Softplus{beta});
}
Tensor softsign(const Tensor& x) { return unary<pointwise::Softsign>(x); }
Tensor exp(const Tensor& x) { return unary<pointwise::Exp>(x); }
Tensor log(const Tensor& x) { return unary<pointwise::Log>(x); }
Tensor expm1(const Tensor& x) { return unary<pointwise::Expm1>(x); }
Tensor log1p(const Tensor& x) { return unary<pointwise::Log1p>(x); }
Tensor erf(const Tensor& x) { return unary<pointwise::Erf>(x); }
Tensor sin(const Tensor& x) { return unary<pointwise::Sin>(x); }
Tensor cos(const Tensor& x) { return unary<pointwise::Cos>(x); }
Tensor pow(const Tensor& x, double exponent) { return unary(x, pointwise::Pow{exponent}); }
Tensor floor(const Tensor& x) { return unary<pointwise::Floor>(x); }
Tensor ceil(const Tensor& x) { return unary<pointwise::Ceil>(x); }
Tensor round(const Tensor& x) { return unary<pointwise::Round>(x); }
Tensor sign(const Tensor& x) { return unary<pointwise::Sign>(x); }
Tensor gelu_tanh(const Tensor& x) { return unary<pointwise::GeluTanh>(x); }
Tensor mish(const Tensor& x) { return unary<pointwise::Mish>(x); }
Tensor sqrt(const Tensor& x) { return unary<pointwise::Sqrt>(x); }
Tensor rsqrt(const Tensor& x) { return unary<pointwise::Rsqrt>(x); }
Tensor reciprocal(const Tensor& x) { return unary<pointwise::Reciprocal>(x); }
Tensor square(const Tensor& x) { return unary<pointwise::Square>(x); }
Tensor abs(const Tensor& x) { return x && is_integer(x.dtype()) ? maximum(x, neg(x)) : unary<pointwise::Abs>(x); }
Tensor neg(const Tensor& x) {
  return x && is_integer(x.dtype()) ? sub(ops::number_like("neg", x, 0), x) : unary<pointwise::Neg>(x);
}
Tensor add_scalar(const Tensor& x, double number) {
  if (x && is_integer(x.dtype())) return add(x, ops::number_like("add_scalar", x, number));
  return unary(x, pointwise::AddScalar{number});
}
Tensor prelu(const Tensor& x, const Tensor& slope) {
  ops::check_float("prelu", x);
  const Shape& whole = ops::global_shape(x);
  check(slope && x.rank() >= 1 && slope.rank() == 1 &&
            (slope.global_shape()[0] == 1 || slope.global_shape()[0] == whole[-1]),
        "prelu", "slopes are {}, expected [1] or [{}]", slope ? slope.shape() : Shape{}, x.rank() ? whole[-1] : 1);
  return ops::as_one_op("prelu", {&x, &slope}, {},
                        [&] { return relu(x) + ops::in_type(slope, x.dtype()) * (x - relu(x)); });
}
namespace {
std::vector<Tensor> halves(const char* op, const Tensor& x) {
  ops::check_float(op, x);
  const Shape& s = x.global_shape();
  check(s.rank() >= 1 && s[-1] % 2 == 0, op, "the last axis of {} has no halves", s);
  return split(x, {s[-1] / 2, s[-1] / 2}, -1);
}
}  // namespace
Tensor glu(const Tensor& x) {
  const auto parts = halves("glu", x);
  return parts[0] * sigmoid(parts[1]);
}
Tensor swiglu(const Tensor& x) {
  const auto parts = halves("swiglu", x);
  return silu(parts[0]) * parts[1];
}

Tensor scale(const Tensor& x, double factor) {
  if (x && is_integer(x.dtype())) return mul(x, ops::number_like("scale", x, factor));
  ops::check_float("scale", x);
  Tensor y = ops::part_like(x);
  launch<kernel::Axpby>(y, x, factor, 0.0);
  if (!needs_record("scale", y, {&x})) return y;
  return record("scale", std::move(y), {x}, factor, ops::twice([factor](const Tensor& dy, Gradients& g) {
                  if (g.records()) return g.set_grad(0, scale(dy, factor));
                  write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::Axpby>(dx, dy, factor, 0.0); });
                }));
}

}  // namespace trireme
