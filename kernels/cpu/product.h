// c (+)= op(a) op(b) in f64, row-major with leading dimensions. The f64 kernels stand on this.
#pragma once
#include "kernels/core/view.h"

namespace trireme {

/// A row-major matrix borrowed from somebody; transposed: op(a) = a^T.
struct MatrixRef {
  const double* data;
  Index leading;  ///< elements from one row to the next
  bool transposed = false;
};

/// c [m, n] (+)= op(a) [m, k] op(b) [k, n], on the calling thread alone.
void product(double* c, Index leading_c, MatrixRef a, MatrixRef b, Index m, Index n, Index k, bool accumulate);
/// The same with rows of c divided among threads().
void product_parallel(double* c, Index leading_c, MatrixRef a, MatrixRef b, Index m, Index n, Index k, bool accumulate);

}  // namespace trireme
