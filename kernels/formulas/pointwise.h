// Elementwise formulas. Each is written once, and every backend makes its kernels from these structs
// (kernels/cpu/map.h, kernels/cuda/map.cu). The members of a formula are its parameters. A unary formula has value(x)
// and slope(x, y), the derivative at x, where y = value(x). needs_x and needs_y say which of the two slope reads, so
// that backward keeps only those. A binary formula has value(a, b). Arguments and results are float or double (bf16 and
// f16 are computed in float). All functions are constexpr, so that device compilers accept them.
#pragma once
#include <tuple>

#include "kernels/formulas/math.h"

namespace trireme::pointwise {

/// torch.relu: max(x, 0).
struct Relu {
  static constexpr char name[] = "relu", backward_name[] = "relu_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr bool linear_pieces = true;
  static constexpr auto value(auto x) { return x <= 0 ? 0 : x; }
  static constexpr auto slope(auto, auto y) { return y <= 0 ? decltype(y)(0) : 1; }
};
/// F.leaky_relu: x if x >= 0, else negative_slope * x. negative_slope must not be negative.
struct LeakyRelu {
  static constexpr char name[] = "leaky_relu", backward_name[] = "leaky_relu_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr bool linear_pieces = true;
  double negative_slope = 0.01;
  template <class T>
  constexpr T value(T x) const {
    return x > 0 ? x : x * T(negative_slope);
  }
  template <class T>
  constexpr T slope(T, T y) const {
    return y > 0 ? T(1) : T(negative_slope);
  }
};
/// F.elu: x if x >= 0, else alpha (exp(x) - 1), with alpha >= 0 (Clevert et al., arXiv 1511.07289).
struct Elu {
  static constexpr char name[] = "elu", backward_name[] = "elu_backward";
  static constexpr bool needs_x = false, needs_y = true;
  double alpha = 1;
  template <class T>
  constexpr T value(T x) const {
    return x > 0 ? x : T(alpha) * math::expm1(x);
  }
  template <class T>
  constexpr T slope(T, T y) const {
    return y > 0 ? T(1) : y + T(alpha);
  }
};
/// F.gelu: x Phi(x), exact (Hendrycks & Gimpel, arXiv 1606.08415).
struct Gelu {
  static constexpr char name[] = "gelu", backward_name[] = "gelu_backward";
  static constexpr bool needs_x = true, needs_y = false;
  template <class T>
  static constexpr T value(T x) {
    return x * (T(0.5) * (1 + math::erf(x * T(0.70710678118654752))));
  }
  template <class T>
  static constexpr T slope(T x, T) {
    const auto [erf, gauss] = math::erf_and_gauss(x * T(0.70710678118654752));
    return T(0.5) * (1 + erf) + x * T(0.39894228040143268) * gauss;
  }
};
/// torch.sigmoid: 1 / (1 + exp(-x)).
struct Sigmoid {
  static constexpr char name[] = "sigmoid", backward_name[] = "sigmoid_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr auto value(auto x) { return 1 / (1 + math::exp(-x)); }
  static constexpr auto slope(auto, auto y) { return y * (1 - y); }
};
/// F.silu: x sigmoid(x) (Elfwing et al., arXiv 1702.03118).
struct Silu {
  static constexpr char name[] = "silu", backward_name[] = "silu_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return x / (1 + math::exp(-x)); }
  static constexpr auto slope(auto x, auto) {
    const auto s = Sigmoid::value(x);
    return s * (1 + x * (1 - s));
  }
};
/// F.hardtanh: x clamped to [low, high]; the gradient is 0 at the bounds. relu6 is Hardtanh{0, 6}.
struct Hardtanh {
  static constexpr char name[] = "hardtanh", backward_name[] = "hardtanh_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr bool linear_pieces = true;
  double low = -1, high = 1;
  template <class T>
  constexpr T value(T x) const {
    return x < T(low) ? T(low) : x > T(high) ? T(high) : x;
  }
  template <class T>
  constexpr T slope(T x, T) const {
    return x > T(low) && x < T(high) ? T(1) : T(0);
  }
};
/// torch.clamp: x clamped to [low, high]; the gradient is 1 at the bounds.
struct Clamp {
  static constexpr char name[] = "clamp", backward_name[] = "clamp_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr bool linear_pieces = true;
  double low, high;
  constexpr auto value(auto x) const { return Hardtanh{low, high}.value(x); }
  template <class T>
  constexpr T slope(T x, T) const {
    return x >= T(low) && x <= T(high) ? T(1) : T(0);
  }
};
/// F.hardsigmoid: relu6(x + 3) / 6 (Howard et al., arXiv 1905.02244).
struct Hardsigmoid {
  static constexpr char name[] = "hardsigmoid", backward_name[] = "hardsigmoid_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr bool linear_pieces = true;
  static constexpr auto value(auto x) { return Hardtanh{0, 6}.value(x + 3) / 6; }
  static constexpr auto slope(auto x, auto) { return x > -3 && x < 3 ? decltype(x)(1) / 6 : 0; }
};
/// F.hardswish: x hardsigmoid(x) (Howard et al., arXiv 1905.02244).
struct Hardswish {
  static constexpr char name[] = "hardswish", backward_name[] = "hardswish_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return x * Hardsigmoid::value(x); }
  template <class T>
  static constexpr T slope(T x, T) {
    return x <= -3 ? T(0) : x < 3 ? x / 3 + T(0.5) : T(1);
  }
};
/// torch.tanh.
struct Tanh {
  static constexpr char name[] = "tanh", backward_name[] = "tanh_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr auto value(auto x) { return math::tanh(x); }
  static constexpr auto slope(auto, auto y) { return 1 - y * y; }
};
/// F.softplus: log(1 + exp(beta x)) / beta, without PyTorch's threshold: exact for every x.
struct Softplus {
  static constexpr char name[] = "softplus", backward_name[] = "softplus_backward";
  static constexpr bool needs_x = true, needs_y = false;
  double beta = 1;
  template <class T>
  constexpr T value(T x) const {
    const T z = T(beta) * x;
    return T(1 / beta) * ((z < 0 ? 0 : z) + math::log1p_of_exp_minus(z < 0 ? -z : z));
  }
  template <class T>
  constexpr T slope(T x, T) const {
    return Sigmoid::value(T(beta) * x);
  }
};
/// F.softsign: x / (1 + |x|).
struct Softsign {
  static constexpr char name[] = "softsign", backward_name[] = "softsign_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return x / (1 + math::abs(x)); }
  static constexpr auto slope(auto x, auto) {
    const auto r = 1 / (1 + math::abs(x));
    return r * r;
  }
};
/// torch.exp.
struct Exp {
  static constexpr char name[] = "exp", backward_name[] = "exp_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr auto value(auto x) { return math::exp(x); }
  static constexpr auto slope(auto, auto y) { return y; }
};
/// torch.log: natural; NaN below 0, -inf at 0.
struct Log {
  static constexpr char name[] = "log", backward_name[] = "log_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return math::log(x); }
  static constexpr auto slope(auto x, auto) { return 1 / x; }
};
/// torch.expm1: exp(x) - 1, exact near 0.
struct Expm1 {
  static constexpr char name[] = "expm1", backward_name[] = "expm1_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr auto value(auto x) { return math::expm1(x); }
  static constexpr auto slope(auto, auto y) { return y + 1; }
};
/// torch.log1p: log(1 + x), exact near 0.
struct Log1p {
  static constexpr char name[] = "log1p", backward_name[] = "log1p_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return math::log1p(x); }
  static constexpr auto slope(auto x, auto) { return 1 / (1 + x); }
};
/// torch.erf.
struct Erf {
  static constexpr char name[] = "erf", backward_name[] = "erf_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return math::erf(x); }
  static constexpr auto slope(auto x, auto) { return decltype(x)(1.1283791670955126) * math::exp(-x * x); }
};
/// torch.sin.
struct Sin {
  static constexpr char name[] = "sin", backward_name[] = "sin_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return math::sin(x); }
  static constexpr auto slope(auto x, auto) { return math::cos(x); }
};
/// torch.cos.
struct Cos {
  static constexpr char name[] = "cos", backward_name[] = "cos_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return math::cos(x); }
  static constexpr auto slope(auto x, auto) { return -math::sin(x); }
};
/// torch.pow by a number.
struct Pow {
  static constexpr char name[] = "pow", backward_name[] = "pow_backward";
  static constexpr bool needs_x = true, needs_y = false;
  double exponent = 1;
  template <class T>
  constexpr T value(T x) const {
    return math::pow(x, T(exponent));
  }
  template <class T>
  constexpr T slope(T x, T) const {
    return exponent == 0 ? T(0) : T(exponent) * math::pow(x, T(exponent - 1));
  }
};
/// torch.floor; the gradient is 0.
struct Floor {
  static constexpr char name[] = "floor", backward_name[] = "floor_backward";
  static constexpr bool needs_x = false, needs_y = false;
  static constexpr bool linear_pieces = true;
  static constexpr auto value(auto x) { return math::floor(x); }
  static constexpr auto slope(auto x, auto) { return decltype(x)(0); }
};
/// torch.ceil; the gradient is 0.
struct Ceil {
  static constexpr char name[] = "ceil", backward_name[] = "ceil_backward";
  static constexpr bool needs_x = false, needs_y = false;
  static constexpr bool linear_pieces = true;
  static constexpr auto value(auto x) { return math::ceil(x); }
  static constexpr auto slope(auto x, auto) { return decltype(x)(0); }
};
/// torch.round: ties to the even integer; the gradient is 0.
struct Round {
  static constexpr char name[] = "round", backward_name[] = "round_backward";
  static constexpr bool needs_x = false, needs_y = false;
  static constexpr bool linear_pieces = true;
  static constexpr auto value(auto x) { return math::round(x); }
  static constexpr auto slope(auto x, auto) { return decltype(x)(0); }
};
/// torch.sign: -1, 0 or 1; 0 for NaN; the gradient is 0.
struct Sign {
  static constexpr char name[] = "sign", backward_name[] = "sign_backward";
  static constexpr bool needs_x = false, needs_y = false;
  static constexpr bool linear_pieces = true;
  static constexpr auto value(auto x) { return decltype(x)(x > 0 ? 1 : x < 0 ? -1 : 0); }
  static constexpr auto slope(auto x, auto) { return decltype(x)(0); }
};
/// F.gelu(approximate="tanh"): x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 (arXiv 1606.08415).
struct GeluTanh {
  static constexpr char name[] = "gelu_tanh", backward_name[] = "gelu_tanh_backward";
  static constexpr bool needs_x = true, needs_y = false;
  template <class T>
  static constexpr T tanh_of(T x) {
    return math::tanh(T(0.79788456080286536) * (x + T(0.044715) * x * x * x));
  }
  template <class T>
  static constexpr T value(T x) {
    return T(0.5) * x * (1 + tanh_of(x));
  }
  template <class T>
  static constexpr T slope(T x, T) {
    const T t = tanh_of(x);
    return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * T(0.79788456080286536) * (1 + T(0.134145) * x * x);
  }
};
/// F.mish: x tanh(log(1 + exp(x))) (Misra, arXiv 1908.08681).
struct Mish {
  static constexpr char name[] = "mish", backward_name[] = "mish_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return x * math::tanh(Softplus{}.value(x)); }
  static constexpr auto slope(auto x, auto) {
    const auto t = math::tanh(Softplus{}.value(x));
    return t + x * (1 - t * t) * Sigmoid::value(x);
  }
};
/// torch.sqrt: NaN below 0.
struct Sqrt {
  static constexpr char name[] = "sqrt", backward_name[] = "sqrt_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr auto value(auto x) { return math::sqrt(x); }
  static constexpr auto slope(auto, auto y) { return decltype(y)(0.5) / y; }
};
/// sqrt(x) whose gradient is 0 at 0: for norms and standard deviations, as in PyTorch.
struct RootOfSquares {
  static constexpr char name[] = "root_of_squares", backward_name[] = "root_of_squares_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr auto value(auto x) { return math::sqrt(x); }
  static constexpr auto slope(auto, auto y) { return y == 0 ? 0 : decltype(y)(0.5) / y; }
};
/// torch.rsqrt: 1 / sqrt(x).
struct Rsqrt {
  static constexpr char name[] = "rsqrt", backward_name[] = "rsqrt_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr auto value(auto x) { return 1 / math::sqrt(x); }
  static constexpr auto slope(auto, auto y) { return decltype(y)(-0.5) * y * y * y; }
};
/// torch.reciprocal: 1 / x.
struct Reciprocal {
  static constexpr char name[] = "reciprocal", backward_name[] = "reciprocal_backward";
  static constexpr bool needs_x = false, needs_y = true;
  static constexpr auto value(auto x) { return 1 / x; }
  static constexpr auto slope(auto, auto y) { return -y * y; }
};
/// torch.square.
struct Square {
  static constexpr char name[] = "square", backward_name[] = "square_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr auto value(auto x) { return x * x; }
  static constexpr auto slope(auto x, auto) { return 2 * x; }
};
/// torch.abs; the gradient is 0 at 0 and at NaN.
struct Abs {
  static constexpr char name[] = "abs", backward_name[] = "abs_backward";
  static constexpr bool needs_x = true, needs_y = false;
  static constexpr bool linear_pieces = true;
  static constexpr auto value(auto x) { return math::abs(x); }
  static constexpr auto slope(auto x, auto) { return decltype(x)(x > 0 ? 1 : x < 0 ? -1 : 0); }
};
/// torch.neg.
struct Neg {
  static constexpr char name[] = "neg", backward_name[] = "neg_backward";
  static constexpr bool needs_x = false, needs_y = false;
  static constexpr bool linear_pieces = true;
  static constexpr auto value(auto x) { return -x; }
  static constexpr auto slope(auto x, auto) { return decltype(x)(-1); }
};
/// x + number.
struct AddScalar {
  static constexpr char name[] = "add_scalar", backward_name[] = "add_scalar_backward";
  static constexpr bool needs_x = false, needs_y = false;
  static constexpr bool linear_pieces = true;
  double number = 0;
  template <class T>
  constexpr T value(T x) const {
    return x + T(number);
  }
  static constexpr auto slope(auto x, auto) { return decltype(x)(1); }
};

/// An operand of a sum or product; integers wrap around on overflow.
template <class T>
constexpr auto modular(T v) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<std::make_unsigned_t<T>>(v);
  else
    return v;
}
// A binary formula with `integers` also accepts integers.
/// torch.add: a + b.
struct Add {
  static constexpr char name[] = "add";
  static constexpr bool integers = true;
  template <class T>
  static constexpr T value(T a, T b) {
    return static_cast<T>(modular(a) + modular(b));
  }
};
/// torch.sub: a - b.
struct Sub {
  static constexpr char name[] = "sub";
  static constexpr bool integers = true;
  template <class T>
  static constexpr T value(T a, T b) {
    return static_cast<T>(modular(a) - modular(b));
  }
};
/// torch.mul: a b.
struct Mul {
  static constexpr char name[] = "mul";
  static constexpr bool integers = true;
  template <class T>
  static constexpr T value(T a, T b) {
    return static_cast<T>(modular(a) * modular(b));
  }
};
/// torch.remainder: a - b floor(a / b), without rounding; the result has b's sign. For integers 0 if b is 0.
struct Remainder {
  static constexpr char name[] = "remainder";
  static constexpr bool integers = true;
  template <class T>
  static constexpr T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return a;
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return 0;
      const T rest = static_cast<T>(a % b);
      return static_cast<T>(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    } else {
      return math::FloorDivision<T>(a, b).rest;
    }
  }
};
/// torch.floor_divide: floor(a / b), from the exact remainder and not from the rounded quotient. For integers 0 if b is
/// 0.
struct FloorDivide {
  static constexpr char name[] = "floor_divide";
  static constexpr bool integers = true;
  template <class T>
  static constexpr T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return static_cast<T>(0 - modular(a));  // the smallest number has no negation
      return static_cast<T>(a / b - (a % b != 0 && (a < 0) != (b < 0)));
    } else {
      return math::FloorDivision<T>(a, b).whole;
    }
  }
};
/// torch.div: a / b, by IEEE 754 at b = 0.
struct Div {
  static constexpr char name[] = "div";
  static constexpr auto value(auto a, auto b) { return a / b; }
};
/// torch.maximum: NaN if either is NaN.
struct Maximum {
  static constexpr char name[] = "maximum";
  static constexpr bool integers = true;
  static constexpr auto value(auto a, auto b) { return a > b || a != a ? a : b; }
};
/// torch.minimum: NaN if either is NaN.
struct Minimum {
  static constexpr char name[] = "minimum";
  static constexpr bool integers = true;
  static constexpr auto value(auto a, auto b) { return a < b || a != a ? a : b; }
};
/// d maximum(a, b) / da; exchange a and b for the derivative by b. Ties get 1/2 each, as in PyTorch.
struct MaximumShare {
  static constexpr char name[] = "maximum_share";
  template <class T>
  static constexpr T value(T a, T b) {
    return a < b ? T(0) : a == b ? T(0.5) : T(1);
  }
};
/// d minimum(a, b) / da.
struct MinimumShare {
  static constexpr char name[] = "minimum_share";
  static constexpr auto value(auto a, auto b) { return MaximumShare::value(b, a); }
};

/// Calls f(T{}) with the C++ type of t: floating types by floats(t, name, f), and integers if F accepts them.
template <class F, class Floats, class Call>
void dispatch(DType t, Floats&& floats, Call&& f) {
  if constexpr (requires { F::integers; })
    dispatch_number(t, F::name, floats, f);
  else
    floats(t, F::name, f);
}

/// K<F> for each of the formulas.
template <template <class> class K, class... F>
using Each = std::tuple<K<F>...>;
/// Every unary formula of the library.
template <template <class> class K>
using EachUnary = Each<K, Relu, LeakyRelu, Elu, Gelu, Sigmoid, Silu, Hardtanh, Clamp, Hardsigmoid, Hardswish, Tanh,
                       Softplus, Softsign, Exp, Log, Expm1, Log1p, Erf, Sin, Cos, Pow, Floor, Ceil, Round, Sign,
                       GeluTanh, Mish, Sqrt, RootOfSquares, Rsqrt, Reciprocal, Square, Abs, Neg, AddScalar>;
/// Every binary formula.
template <template <class> class K>
using EachBinary = Each<K, Add, Sub, Mul, Div, FloorDivide, Remainder, Maximum, Minimum, MaximumShare, MinimumShare>;

}  // namespace trireme::pointwise
