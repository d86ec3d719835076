#include "kernels/plans/matmul_job.h"

namespace trireme {

MatMulJob matmul_job(const View& c, const View& a, const View& b, const MatMulOptions& o) {
  constexpr auto op = kernel::MatMul::name;
  int ra = a.shape.rank(), rb = b.shape.rank();
  check((ra == 2 || ra == 3) && (rb == 2 || rb == 3), op, "matrices or batches of them are expected, got {} and {}",
        a.shape, b.shape);
  MatMulJob j;
  j.batched_a = ra == 3, j.batched_b = rb == 3;
  j.batch = ra == 3 ? a.shape[0] : rb == 3 ? b.shape[0] : 1;
  j.transpose_a = o.transpose_a, j.transpose_b = o.transpose_b, j.accumulate = o.accumulate;
  j.m = a.shape[o.transpose_a ? -1 : -2], j.k = a.shape[o.transpose_a ? -2 : -1];
  j.n = b.shape[o.transpose_b ? -2 : -1];
  Shape expected = ra == 3 || rb == 3 ? Shape{j.batch, j.m, j.n} : Shape{j.m, j.n};
  bool fits = b.shape[o.transpose_b ? -1 : -2] == j.k && (rb == 2 || ra == 2 || a.shape[0] == b.shape[0]);
  check(fits, op, "inner or batch extents differ: {}{} x {}{}", a.shape, o.transpose_a ? "^T" : "", b.shape,
        o.transpose_b ? "^T" : "");
  check(c.shape == expected, op, "the result is {}, expected {}", c.shape, expected);
  return j;
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
  check(!mixed, op, "operands of one floating type are expected, got {} = {} x {}", c.dtype, a.dtype, b.dtype);
}

}  // namespace trireme
