// Snake, x + sin(x)^2 (Ziyin et al., arXiv 2006.08195), as an op of a program's own: its contracts and its declaration.
// snake_op.cpp has the kernels for the CPU, snake_op_cuda.cu those for CUDA.
#pragma once
#include <trireme/kernels/core/view.h>

namespace trireme {
class Tensor;
}

/// y = x + sin(x)^2. All of one shape, floating type and device, as below.
struct SnakeForward {
  static constexpr char name[] = "snake";
  using Fn = void(trireme::View y, trireme::View x);
};
/// dx = dy (1 + sin(2 x)).
struct SnakeBackward {
  static constexpr char name[] = "snake_backward";
  using Fn = void(trireme::View dx, trireme::View dy, trireme::View x);
};

trireme::Tensor snake(const trireme::Tensor& x);
