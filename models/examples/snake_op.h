// Snake, x + sin(x)^2 (Ziyin et al., arXiv 2006.08195), as an example of a custom op: its contracts and its
// declaration. snake_op.cpp has the CPU kernels, snake_op_cuda.cu the CUDA kernels.
#pragma once
#include <trireme/kernels/core/view.h>

namespace trireme {
class Tensor;
}

/// Contract of the forward kernel: y = x + sin(x)^2. Tensors have the same shape, floating-point type and device, also
/// below.
struct SnakeForward {
  static constexpr char name[] = "snake";
  using Fn = void(trireme::View y, trireme::View x);
};
/// Contract of the backward kernel: dx = dy (1 + sin(2 x)).
struct SnakeBackward {
  static constexpr char name[] = "snake_backward";
  using Fn = void(trireme::View dx, trireme::View dy, trireme::View x);
};

/// The op: y = x + sin(x)^2, differentiable.
trireme::Tensor snake(const trireme::Tensor& x);
