// What follows a convolution where cuDNN has no engine that does all in one.
#pragma once
#include "kernels/cuda/device.h"

namespace trireme::gpu {

/// y = x + bias + residual, then ReLU if asked. x: y's shape and type, perhaps its block; bias [C] of y's type or f32,
/// or none; residual: y's shape and type, perhaps its block, or none.
void conv_tail(const On&, const View& y, const View& x, const View& bias, const View& residual, bool relu);

}  // namespace trireme::gpu
