// Our own CUDA convolutions, for cases without an engine in cuDNN: f64, any groups, 1 to 3 spatial axes, paddings that
// differ before and after.
#pragma once
#include "kernels/cuda/device.h"
#include "kernels/plans/conv_shape.h"

namespace trireme::gpu {

// The contracts of kernels/contracts/conv.h without checks: operands have been checked, and ConvShape has their
// extents. Any alignment. dw may be f32 if the operands are bf16 or f16.
void conv_direct(const On&, View y, View x, View w, View bias, View residual, const ConvShape&, bool relu);
void conv_direct_backward_input(const On&, View dx, View dy, View w, const ConvShape&, bool accumulate);
void conv_direct_backward_weight(const On&, View dw, View x, View dy, const ConvShape&, bool accumulate);

}  // namespace trireme::gpu
