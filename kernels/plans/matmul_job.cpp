#include "kernels/plans/matmul_job.h"

namespace trireme {

Shape matmul_output_shape(const Shape& a, const Shape& b, const MatMulOptions& o, std::string_view op) {
  check((a.rank() == 2 || a.rank() == 3) && (b.rank() == 2 || b.rank() == 3), op,
        "operands are {} and {}: each must have 2 axes, or 3 with the batch first", a, b);
  check(a[o.transpose_a ? -2 : -1] == b[o.transpose_b ? -1 : -2] && (a.rank() == 2 || b.rank() == 2 || a[0] == b[0]),
        op, "{}{} times {}{} do not fit", a, o.transpose_a ? "^T" : "", b, o.transpose_b ? "^T" : "");
  const Index m = a[o.transpose_a ? -1 : -2], n = b[o.transpose_b ? -2 : -1];
  return a.rank() == 3 ? Shape{a[0], m, n} : b.rank() == 3 ? Shape{b[0], m, n} : Shape{m, n};
}

MatMulJob matmul_job(const View& c, const View& a, const View& b, const MatMulOptions& o) {
  const Shape expected = matmul_output_shape(a.shape, b.shape, o, kernel::MatMul::name);
  check(c.shape == expected, kernel::MatMul::name, "the result is {}, expected {}", c.shape, expected);
  return {.batch = expected.rank() == 3 ? expected[0] : 1,
          .m = expected[-2],
          .n = expected[-1],
          .k = a.shape[o.transpose_a ? -2 : -1],
          .batched_a = a.shape.rank() == 3,
          .batched_b = b.shape.rank() == 3,
          .transpose_a = o.transpose_a,
          .transpose_b = o.transpose_b,
          .accumulate = o.accumulate};
}

MatMulJob linear_job(const View& y, const View& x, const View& w, const View& bias, bool relu) {
  constexpr auto op = kernel::Linear::name;
  check(x.shape.rank() == 2 && w.shape.rank() == 2 && x.shape[1] == w.shape[1], op,
        "input is {}, weight is {}: expected [N, I] and [O, I]", x.shape, w.shape);
  check((y.shape == Shape{x.shape[0], w.shape[0]}), op, "output is {}, expected [{}, {}]", y.shape, x.shape[0],
        w.shape[0]);
  check(!bias || bias.shape == Shape{w.shape[0]}, op, "bias is {}, expected [{}]", bias.shape, w.shape[0]);
  return {.m = x.shape[0], .n = w.shape[0], .k = x.shape[1], .transpose_b = true, .relu = relu};
}

MatMulJob linear_backward_input_job(const View& dx, const View& dy, const View& w) {
  constexpr auto op = kernel::LinearBackwardInput::name;
  check(dy.shape.rank() == 2 && w.shape.rank() == 2 && dy.shape[1] == w.shape[0], op,
        "output gradient is {}, weight is {}: expected [N, O] and [O, I]", dy.shape, w.shape);
  check((dx.shape == Shape{dy.shape[0], w.shape[1]}), op, "input gradient is {}, expected [{}, {}]", dx.shape,
        dy.shape[0], w.shape[1]);
  return {.m = dy.shape[0], .n = w.shape[1], .k = w.shape[0]};
}

MatMulJob linear_backward_weight_job(const View& dw, const View& x, const View& dy, bool accumulate) {
  constexpr auto op = kernel::LinearBackwardWeight::name;
  check(x.shape.rank() == 2 && dy.shape.rank() == 2 && x.shape[0] == dy.shape[0], op,
        "input is {}, output gradient is {}: expected [N, I] and [N, O]", x.shape, dy.shape);
  check((dw.shape == Shape{dy.shape[1], x.shape[1]}), op, "weight gradient is {}, expected [{}, {}]", dw.shape,
        dy.shape[1], x.shape[1]);
  return {.m = dy.shape[1], .n = x.shape[1], .k = x.shape[0], .transpose_a = true, .accumulate = accumulate};
}

void check_matmul_types(const View& c, const View& a, const View& b, const View& bias, std::string_view op) {
  bool mixed = a.dtype != b.dtype || (c.dtype != a.dtype && c.dtype != DType::f32) || !is_float(a.dtype) ||
               (bias && bias.dtype != a.dtype && bias.dtype != DType::f32);
  check(!mixed, op, "got {} = {} x {}, expected operands of the same floating type", c.dtype, a.dtype, b.dtype);
}

}  // namespace trireme
