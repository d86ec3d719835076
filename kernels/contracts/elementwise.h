// Contracts of elementwise operations. A formula (kernels/formulas/pointwise.h) is written once, and each backend makes
// a kernel of it.
#pragma once
#include "kernels/core/random.h"
#include "kernels/core/view.h"

namespace trireme {

namespace kernel {

/// y = f(x), of the same shape and floating type. F is a unary formula, f its parameters.
template <class F>
struct Map {
  static constexpr auto& name = F::name;  ///< name of the formula, in errors, profiles and census()
  /// y is the output; f is passed by value.
  using Fn = void(View y, View x, F f);
};
/// dx = dy * f'(x), all of the same shape and floating type. x and y = f(x) are given if F::needs_x and F::needs_y,
/// else View{}. dx may be the same block as dy.
template <class F>
struct MapBackward {
  static constexpr auto& name = F::backward_name;  ///< name of the formula's gradient, in errors, profiles and census()
  /// dx is the output; f as in forward.
  using Fn = void(View dx, View dy, View x, View y, F f);
};
/// y = f(a, b), a and b broadcast to y's shape by NumPy's rules, all of the same floating type (or integer type, if
/// F::integers). F is a binary formula. y may be the same block as an operand of its shape.
template <class F>
struct Zip {
  static constexpr auto& name = F::name;  ///< name of the formula, in errors, profiles and census()
  /// y is the output. Throws Error if a and b do not broadcast to y.
  using Fn = void(View y, View a, View b, F f);
};

/// y = alpha * x + beta * y, of the same shape and floating type. With beta = 0, y's old contents are ignored. Throws
/// Error for different shapes or types, and for View{}.
struct Axpby {
  static constexpr char name[] = "axpby";  ///< in errors, profiles and census()
  /// y is overwritten, and read if beta != 0; alpha and beta are rounded to the accumulator's type.
  using Fn = void(View y, View x, double alpha, double beta);
};
/// y = value, rounded to y's type; any type and shape.
struct Fill {
  static constexpr char name[] = "fill";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, double value);
};
/// y = x converted to y's type; the same shape, any types. Conversion to u8 goes through i32 (-1 becomes 255).
struct Cast {
  static constexpr char name[] = "cast";  ///< in errors, profiles and census()
  /// y is the output. Throws Error for different shapes.
  using Fn = void(View y, View x);
};
/// y = scale[c] * x + shift[c] with c along the last axis: converts pixels to floats. x u8, y of the same shape and a
/// floating type; scale and shift [C], floating.
struct Normalize {
  static constexpr char name[] = "normalize";  ///< in errors, profiles and census()
  /// y is the output. Throws Error for other shapes or types.
  using Fn = void(View y, View x, View scale, View shift);
};
/// Inverted dropout (Srivastava et al., JMLR 15, 2014): y = x / (1 - p) where kept, else 0; y and x of the same shape
/// and floating type. Element n of sample s is kept if uniform_float(Philox{key()}(s, n / 4)[n % 4]) >= p (Philox:
/// Salmon et al., SC'11). Row r of x (first axis) holds elements first[r], first[r] + 1, ... of sample[r]. Both are i64
/// [rows]; without them row r is sample r, from element 0. Backward is the same call on dy.
struct Dropout {
  static constexpr char name[] = "dropout";  ///< in errors, profiles and census()
  /// y is the output; sample and first may be View{}. Throws Error for p outside [0, 1].
  using Fn = void(View y, View x, View sample, View first, double p, MaskKey key);
};

}  // namespace kernel
}  // namespace trireme
