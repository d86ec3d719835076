// recorded_slope(): the slopes of the formulas in kernels/formulas/pointwise.h by ops, for second derivatives
// (ops::unary finds them by their first argument). The formulas state them in words of numbers.
#pragma once
#include "framework/ops/ops.h"
#include "framework/ops/select.h"
#include "kernels/formulas/pointwise.h"

namespace trireme::pointwise {

inline Tensor recorded_slope(const Elu& f, const Tensor&, const Tensor& y) { return where(y > 0, 1, y + f.alpha); }
inline Tensor recorded_slope(const Gelu&, const Tensor& x, const Tensor&) {
  return (erf(x * 0.70710678118654752) + 1) * 0.5 + x * exp(square(x) * -0.5) * 0.39894228040143268;
}
inline Tensor recorded_slope(const GeluTanh&, const Tensor& x, const Tensor&) {
  const Tensor t = tanh((x + pow(x, 3) * 0.044715) * 0.79788456080286536);
  return (t + 1) * 0.5 + x * (1 - square(t)) * (square(x) * 0.134145 + 1) * (0.5 * 0.79788456080286536);
}
inline Tensor recorded_slope(const Sigmoid&, const Tensor&, const Tensor& y) { return y * (1 - y); }
inline Tensor recorded_slope(const Silu&, const Tensor& x, const Tensor&) {
  const Tensor s = sigmoid(x);
  return s * (x * (1 - s) + 1);
}
inline Tensor recorded_slope(const Hardswish&, const Tensor& x, const Tensor&) {
  return where(x <= -3, 0, where(x < 3, x / 3 + 0.5, 1));
}
inline Tensor recorded_slope(const Mish&, const Tensor& x, const Tensor&) {
  const Tensor t = tanh(softplus(x));
  return t + x * (1 - square(t)) * sigmoid(x);
}
inline Tensor recorded_slope(const Tanh&, const Tensor&, const Tensor& y) { return 1 - square(y); }
inline Tensor recorded_slope(const Softplus& f, const Tensor& x, const Tensor&) { return sigmoid(x * f.beta); }
inline Tensor recorded_slope(const Softsign&, const Tensor& x, const Tensor&) { return square(reciprocal(abs(x) + 1)); }
inline Tensor recorded_slope(const Exp&, const Tensor&, const Tensor& y) { return y; }
inline Tensor recorded_slope(const Log&, const Tensor& x, const Tensor&) { return reciprocal(x); }
inline Tensor recorded_slope(const Expm1&, const Tensor&, const Tensor& y) { return y + 1; }
inline Tensor recorded_slope(const Log1p&, const Tensor& x, const Tensor&) { return reciprocal(x + 1); }
inline Tensor recorded_slope(const Erf&, const Tensor& x, const Tensor&) {
  return exp(-square(x)) * 1.1283791670955126;
}
inline Tensor recorded_slope(const Sin&, const Tensor& x, const Tensor&) { return cos(x); }
inline Tensor recorded_slope(const Cos&, const Tensor& x, const Tensor&) { return -sin(x); }
inline Tensor recorded_slope(const Pow& f, const Tensor& x, const Tensor&) {
  return f.exponent == 0 ? x * 0 : pow(x, f.exponent - 1) * f.exponent;
}
inline Tensor recorded_slope(const Sqrt&, const Tensor&, const Tensor& y) { return 0.5 / y; }
inline Tensor recorded_slope(const RootOfSquares&, const Tensor&, const Tensor& y) {
  return where(eq(y, 0), 0, 0.5 / where(eq(y, 0), 1, y));
}
inline Tensor recorded_slope(const Rsqrt&, const Tensor&, const Tensor& y) { return pow(y, 3) * -0.5; }
inline Tensor recorded_slope(const Reciprocal&, const Tensor&, const Tensor& y) { return -square(y); }
inline Tensor recorded_slope(const Square&, const Tensor& x, const Tensor&) { return x * 2; }

}  // namespace trireme::pointwise
