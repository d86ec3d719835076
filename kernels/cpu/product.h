// Matrix product in f64, row-major with leading dimensions. The f64 kernels use it.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

/// A borrowed row-major matrix. transposed: op(a) = a^T.
struct MatrixRef {
  const double* data;
  Index leading;  ///< elements from one row to the next
  bool transposed = false;
};

/// c [m, n] (+)= op(a) [m, k] op(b) [k, n], on the calling thread only.
void product(double* c, Index leading_c, MatrixRef a, MatrixRef b, Index m, Index n, Index k, bool accumulate);
/// As above, with the rows of c divided among threads().
void product_parallel(double* c, Index leading_c, MatrixRef a, MatrixRef b, Index m, Index n, Index k, bool accumulate);

}  // namespace trireme
