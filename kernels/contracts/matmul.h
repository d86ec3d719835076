// Contracts of matrix products: plain, batched, and the three products of a fully connected layer. Operands have the
// same floating type. With bf16 and f16, results and a bias may be f32. Sums are f32, or f64 for f64. Kernels throw
// Error for shapes or types that do not fit.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

/// Options of MatMul.
struct MatMulOptions {
  bool transpose_a = false,  ///< op(a) = a with its last two axes transposed
      transpose_b = false;   ///< op(b) = b with its last two axes transposed
  bool accumulate = false;   ///< c += the product, instead of c = the product
};

namespace kernel {
/// c (+)= op(a) op(b) (torch.matmul): op(a) [M,K] or [B,M,K], op(b) [K,N] or [B,K,N]; c [M,N], or [B,M,N] if a or b is
/// a batch.
struct MatMul {
  static constexpr char name[] = "matmul";  ///< in errors, profiles and census()
  /// c is the output; it is read if MatMulOptions::accumulate.
  using Fn = void(View c, View a, View b, const MatMulOptions&);
};
/// y = x w^T + bias, followed by ReLU if relu (F.linear). x [N,I], w [O,I] as in PyTorch, bias [O] or none, y [N,O].
struct Linear {
  static constexpr char name[] = "linear";  ///< in errors, profiles and census()
  /// y is the output; bias may be View{}.
  using Fn = void(View y, View x, View w, View bias, bool relu);
};
/// dx [N,I] = dy [N,O] w [O,I].
struct LinearBackwardInput {
  static constexpr char name[] = "linear_backward_input";  ///< in errors, profiles and census()
  /// dx is the output; dy must be masked already if forward had a ReLU.
  using Fn = void(View dx, View dy, View w);
};
/// dw [O,I] (+)= dy^T x; dbias [O] (+)= sum of dy over rows, if given.
struct LinearBackwardWeight {
  static constexpr char name[] = "linear_backward_weight";  ///< in errors, profiles and census()
  /// dw and dbias are outputs; dbias may be View{}; with accumulate the gradients are added; dy must be masked already
  /// if forward had a ReLU.
  using Fn = void(View dw, View dbias, View x, View dy, bool accumulate);
};

}  // namespace kernel
}  // namespace trireme
