// Matrix products: plain, batched, and the three halves of a fully connected layer.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

struct MatMulOptions {
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;  ///< c += instead of c =
};

namespace kernel {
/// c = op(a) op(b). a [M,K] or [B,M,K], b [K,N] or [B,K,N] before transposition; c [M,N] or [B,M,N].
struct MatMul {
  static constexpr char name[] = "matmul";
  using Fn = void(View c, View a, View b, const MatMulOptions&);
};
/// y = x w^T + bias, then ReLU if asked. x [N,I], w [O,I] (PyTorch's), bias [O] or none, y [N,O].
struct Linear {
  static constexpr char name[] = "linear";
  using Fn = void(View y, View x, View w, View bias, bool relu);
};
/// dx = dy w.
struct LinearBackwardInput {
  static constexpr char name[] = "linear_backward_input";
  using Fn = void(View dx, View dy, View w);
};
/// dw (+)= dy^T x; dbias (+)= sum of dy over rows, if given.
struct LinearBackwardWeight {
  static constexpr char name[] = "linear_backward_weight";
  using Fn = void(View dw, View dbias, View x, View dy, bool accumulate);
};

}  // namespace kernel
}  // namespace trireme
