// Matrix products: plain, batched, and the three products of a fully connected layer. Operands have one floating type;
// results may be f32 beside bf16 and f16, and so may a bias. Sums are f32, f64 for f64. Throw Error for shapes or types
// that do not fit.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

/// Options of MatMul.
struct MatMulOptions {
  bool transpose_a = false,  ///< op(a) = a with its last two axes exchanged
      transpose_b = false;   ///< op(b) likewise
  bool accumulate = false;   ///< c += instead of c =
};

namespace kernel {
/// c (+)= op(a) op(b) (torch.matmul): op(a) [M,K] or [B,M,K], op(b) [K,N] or [B,K,N], op transposing the last two axes
/// where asked; c [M,N] or, where a or b is a batch, [B,M,N].
struct MatMul {
  static constexpr char name[] = "matmul";  ///< in errors, profiles and census()
  /// c is the output, read where MatMulOptions::accumulate is set.
  using Fn = void(View c, View a, View b, const MatMulOptions&);
};
/// y = x w^T + bias, then ReLU if asked (F.linear). x [N,I], w [O,I] (PyTorch's), bias [O] or none, y [N,O].
struct Linear {
  static constexpr char name[] = "linear";  ///< in errors, profiles and census()
  /// y is the output; bias may be View{}.
  using Fn = void(View y, View x, View w, View bias, bool relu);
};
/// dx [N,I] = dy [N,O] w [O,I].
struct LinearBackwardInput {
  static constexpr char name[] = "linear_backward_input";  ///< in errors, profiles and census()
  /// dx is the output; a ReLU of forward is to be masked out of dy before.
  using Fn = void(View dx, View dy, View w);
};
/// dw [O,I] (+)= dy^T x; dbias [O] (+)= sum of dy over rows, if given.
struct LinearBackwardWeight {
  static constexpr char name[] = "linear_backward_weight";  ///< in errors, profiles and census()
  /// dw and dbias are outputs, dbias or View{}; accumulate adds to both; dy masked as above.
  using Fn = void(View dw, View dbias, View x, View dy, bool accumulate);
};

}  // namespace kernel
}  // namespace trireme
