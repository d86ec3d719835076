// What follows a product where cuBLASLt and cuDNN have nothing for it: a bias along rows, and sums over rows.
#pragma once
#include "kernels/cuda/device.h"

namespace trireme::gpu {

/// What follows a convolution where cuDNN has no engine that does all in one: y = x + bias + residual, then ReLU if
/// asked. x: y's shape and type, perhaps its block; bias [C] of y's type (or one of the two is f32), or none; residual:
/// y's shape and type, perhaps its block, or none.
void conv_tail(const On&, const View& y, const View& x, const View& bias, const View& residual, bool relu);

/// y [..., C] += bias [C] (none: View{}), then ReLU if asked; a NaN stays. bias: y's type, or one of the two is f32.
void add_bias(const On&, const View& y, const View& bias, bool relu);

/// sum [C] (+)= x [..., C] over all axes but the last, in an order that depends on the shape alone. sum: x's type, or
/// f32 beside bf16 and f16. Throws Error when the two do not fit.
void sum_rows(const On&, const View& sum, const View& x, bool accumulate);

/// sum [C] (+)= parts [strips, C] over strips, in a fixed order.
void sum_parts(const On&, const View& sum, const double* parts, Index strips, bool accumulate);

}  // namespace trireme::gpu
