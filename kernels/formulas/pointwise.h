// The elementwise formulas, each written once: every backend makes its kernels from these structs. Unary:
// value(x) and slope(x, y), the derivative where y = value(x); needs_x and needs_y say which of the two slope
// reads, so that only that is kept for backward. Binary: value(a, b). T is float or double (bf16 is computed
// in float). All are constexpr so that device compilers may take them for the device as well.
#pragma once
#include "kernels/formulas/math.h"

namespace trireme::pointwise {

struct Relu {
  static constexpr char name[] = "relu", backward_name[] = "relu_backward";
  static constexpr bool needs_x = false, needs_y = true;
  template <class T>
  static constexpr T value(T x) {
    return x <= T(0) ? T(0) : x;
  }
  template <class T>
  static constexpr T slope(T, T y) {
    return y <= T(0) ? T(0) : T(1);
  }
};
/// Slope 0.01 below zero.
struct LeakyRelu {
  static constexpr char name[] = "leaky_relu", backward_name[] = "leaky_relu_backward";
  static constexpr bool needs_x = false, needs_y = true;
  template <class T>
  static constexpr T value(T x) {
    return x > T(0) ? x : x * T(0.01);
  }
  template <class T>
  static constexpr T slope(T, T y) {
    return y > T(0) ? T(1) : T(0.01);
  }
};
/// alpha 1 (Clevert et al., arXiv 1511.07289).
struct Elu {
  static constexpr char name[] = "elu", backward_name[] = "elu_backward";
  static constexpr bool needs_x = false, needs_y = true;
  template <class T>
  static constexpr T value(T x) {
    return x > T(0) ? x : math::expm1(x);
  }
  template <class T>
  static constexpr T slope(T, T y) {
    return y > T(0) ? T(1) : y + T(1);
  }
};
/// x Phi(x), exact (Hendrycks & Gimpel, arXiv 1606.08415).
struct Gelu {
  static constexpr char name[] = "gelu", backward_name[] = "gelu_backward";
  static constexpr bool needs_x = true, needs_y = false;
  template <class T>
  static constexpr T normal_cdf(T x) {
    return T(0.5) * (T(1) + math::erf(x * T(0.70710678118654752)));
  }
  template <class T>
  static constexpr T value(T x) {
    return x * normal_cdf(x);
  }
  template <class T>
  static constexpr T slope(T x, T) {
    return normal_cdf(x) + x * T(0.39894228040143268) * math::exp(T(-0.5) * x * x);
  }
};
struct Sigmoid {
  static constexpr char name[] = "sigmoid", backward_name[] = "sigmoid_backward";
  static constexpr bool needs_x = false, needs_y = true;
  template <class T>
  static constexpr T value(T x) {
    return T(1) / (T(1) + math::exp(-x));
  }
  template <class T>
  static constexpr T slope(T, T y) {
    return y * (T(1) - y);
  }
};
/// x sigmoid(x).
struct Silu {
  static constexpr char name[] = "silu", backward_name[] = "silu_backward";
  static constexpr bool needs_x = true, needs_y = false;
  template <class T>
  static constexpr T value(T x) {
    return x / (T(1) + math::exp(-x));
  }
  template <class T>
  static constexpr T slope(T x, T) {
    T s = Sigmoid::value(x);
    return s * (T(1) + x * (T(1) - s));
  }
};
struct Tanh {
  static constexpr char name[] = "tanh", backward_name[] = "tanh_backward";
  static constexpr bool needs_x = false, needs_y = true;
  template <class T>
  static constexpr T value(T x) {
    return math::tanh(x);
  }
  template <class T>
  static constexpr T slope(T, T y) {
    return T(1) - y * y;
  }
};
/// log(1 + exp(x)).
struct Softplus {
  static constexpr char name[] = "softplus", backward_name[] = "softplus_backward";
  static constexpr bool needs_x = true, needs_y = false;
  template <class T>
  static constexpr T value(T x) {
    T size = x < T(0) ? -x : x;
    return (x < T(0) ? T(0) : x) + math::log1p_of_exp_minus(size);
  }
  template <class T>
  static constexpr T slope(T x, T) {
    return Sigmoid::value(x);
  }
};
/// x / (1 + |x|).
struct Softsign {
  static constexpr char name[] = "softsign", backward_name[] = "softsign_backward";
  static constexpr bool needs_x = true, needs_y = false;
  template <class T>
  static constexpr T value(T x) {
    return x / (T(1) + math::abs(x));
  }
  template <class T>
  static constexpr T slope(T x, T) {
    T r = T(1) / (T(1) + math::abs(x));
    return r * r;
  }
};
struct Exp {
  static constexpr char name[] = "exp", backward_name[] = "exp_backward";
  static constexpr bool needs_x = false, needs_y = true;
  template <class T>
  static constexpr T value(T x) {
    return math::exp(x);
  }
  template <class T>
  static constexpr T slope(T, T y) {
    return y;
  }
};
struct Log {
  static constexpr char name[] = "log", backward_name[] = "log_backward";
  static constexpr bool needs_x = true, needs_y = false;
  template <class T>
  static constexpr T value(T x) {
    return math::log(x);
  }
  template <class T>
  static constexpr T slope(T x, T) {
    return T(1) / x;
  }
};
struct Sqrt {
  static constexpr char name[] = "sqrt", backward_name[] = "sqrt_backward";
  static constexpr bool needs_x = false, needs_y = true;
  template <class T>
  static constexpr T value(T x) {
    return math::sqrt(x);
  }
  template <class T>
  static constexpr T slope(T, T y) {
    return T(0.5) / y;
  }
};
struct Square {
  static constexpr char name[] = "square", backward_name[] = "square_backward";
  static constexpr bool needs_x = true, needs_y = false;
  template <class T>
  static constexpr T value(T x) {
    return x * x;
  }
  template <class T>
  static constexpr T slope(T x, T) {
    return T(2) * x;
  }
};
struct Abs {
  static constexpr char name[] = "abs", backward_name[] = "abs_backward";
  static constexpr bool needs_x = true, needs_y = false;
  template <class T>
  static constexpr T value(T x) {
    return math::abs(x);
  }
  template <class T>
  static constexpr T slope(T x, T) {
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
  }
};
struct Neg {
  static constexpr char name[] = "neg", backward_name[] = "neg_backward";
  static constexpr bool needs_x = false, needs_y = false;
  template <class T>
  static constexpr T value(T x) {
    return -x;
  }
  template <class T>
  static constexpr T slope(T, T) {
    return T(-1);
  }
};

struct Add {
  static constexpr char name[] = "add";
  template <class T>
  static constexpr T value(T a, T b) {
    return a + b;
  }
};
struct Sub {
  static constexpr char name[] = "sub";
  template <class T>
  static constexpr T value(T a, T b) {
    return a - b;
  }
};
struct Mul {
  static constexpr char name[] = "mul";
  template <class T>
  static constexpr T value(T a, T b) {
    return a * b;
  }
};
struct Div {
  static constexpr char name[] = "div";
  template <class T>
  static constexpr T value(T a, T b) {
    return a / b;
  }
};
/// A NaN on either side wins.
struct Maximum {
  static constexpr char name[] = "maximum";
  template <class T>
  static constexpr T value(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  static constexpr char name[] = "minimum";
  template <class T>
  static constexpr T value(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
/// d maximum(a, b) / da; by b it is the same with a and b exchanged. Ties share equally, as in PyTorch.
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
  template <class T>
  static constexpr T value(T a, T b) {
    return a > b ? T(0) : a == b ? T(0.5) : T(1);
  }
};

}  // namespace trireme::pointwise
