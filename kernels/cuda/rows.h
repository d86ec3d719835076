// Steps after a product that cuBLASLt and cuDNN do not provide: a bias along rows, and sums over rows.
#pragma once
#include "kernels/cuda/device.h"

namespace trireme::gpu {

/// The step after a convolution if cuDNN has no engine for all of it: y = x + bias + residual, followed by ReLU if
/// relu. x: y's shape and type, may be its block. bias [C]: y's type, or one of the two is f32; or none. residual: y's
/// shape and type, may be its block; or none.
void conv_tail(const On&, const View& y, const View& x, const View& bias, const View& residual, bool relu);

/// y [..., C] += bias [C] (none: View{}), followed by ReLU if relu; NaN stays NaN. bias: y's type, or one of the two is
/// f32.
void add_bias(const On&, const View& y, const View& bias, bool relu);

/// sum [C] (+)= x [..., C] over all axes but the last, in an order that depends on the shape only. sum: x's type, or
/// f32 if x is bf16 or f16. Throws Error if the two do not fit.
void sum_rows(const On&, const View& sum, const View& x, bool accumulate);

/// sum [C] (+)= parts [strips, C] over strips, in a fixed order.
void sum_parts(const On&, const View& sum, const double* parts, Index strips, bool accumulate);

}  // namespace trireme::gpu
