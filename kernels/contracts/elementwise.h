// Elementwise contracts. A formula (kernels/formulas/pointwise.h) is written once and becomes a kernel on every
// backend.
#pragma once
#include "kernels/core/random.h"
#include "kernels/core/view.h"

namespace trireme {

namespace kernel {

/// y = f(x), same shape and floating type. F is a unary formula (kernels/formulas/pointwise.h), f its parameters.
template <class F>
struct Map {
  static constexpr auto& name = F::name;  ///< of the formula: in errors, profiles and census()
  /// y is the output; f is passed by value.
  using Fn = void(View y, View x, F f);
};
/// dx = dy * f'(x), all of one shape and floating type. x and y = f(x) are given where F::needs_x and F::needs_y say
/// so, else View{}. dx may be dy's block.
template <class F>
struct MapBackward {
  static constexpr auto& name = F::backward_name;  ///< of the formula: in errors, profiles and census()
  /// dx is the output; f is the value that forward had.
  using Fn = void(View dx, View dy, View x, View y, F f);
};
/// y = f(a, b) with NumPy broadcasting of a and b to y's shape, one floating type. F is a binary formula. y may be the
/// block of an operand of its shape.
template <class F>
struct Zip {
  static constexpr auto& name = F::name;  ///< of the formula: in errors, profiles and census()
  /// y is the output. Throws Error where a and b do not broadcast to y.
  using Fn = void(View y, View a, View b, F f);
};

/// y = alpha * x + beta * y, of one shape and floating type; beta 0 ignores what y held. Throws Error for other shapes
/// or types, and for View{}.
struct Axpby {
  static constexpr char name[] = "axpby";  ///< in errors, profiles and census()
  /// y is read (beta != 0) and overwritten; alpha and beta are rounded to the accumulator's type.
  using Fn = void(View y, View x, double alpha, double beta);
};
/// y = value, rounded to y's type; any type and shape.
struct Fill {
  static constexpr char name[] = "fill";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, double value);
};
/// y = x converted to y's type, of one shape, any types; u8 through i32 (-1 as u8 is 255).
struct Cast {
  static constexpr char name[] = "cast";  ///< in errors, profiles and census()
  /// y is the output. Throws Error for different shapes.
  using Fn = void(View y, View x);
};
/// y = scale[c] * x + shift[c], c along the last axis: pixels to floats. x u8, y of its shape and a floating type;
/// scale and shift [C], floating.
struct Normalize {
  static constexpr char name[] = "normalize";  ///< in errors, profiles and census()
  /// y is the output. Throws Error for other shapes or types.
  using Fn = void(View y, View x, View scale, View shift);
};
/// Inverted dropout: y = x / (1 - p) where kept, else 0. Element n of sample s is kept when
/// uniform_float(Philox{key()}(s, n / 4)[n % 4]) >= p (Srivastava et al., JMLR 15, 2014; Philox: Salmon et al., SC'11).
/// y and x of one shape and floating type. Row r of x, of x.shape[0], holds elements first[r], first[r] + 1, ... of
/// sample[r] (i64 [rows] both; none: r, and 0). Backward is the same call on dy.
struct Dropout {
  static constexpr char name[] = "dropout";  ///< in errors, profiles and census()
  /// y is the output; sample and first may be View{}; p in [0, 1], else Error.
  using Fn = void(View y, View x, View sample, View first, double p, MaskKey key);
};

}  // namespace kernel
}  // namespace trireme
