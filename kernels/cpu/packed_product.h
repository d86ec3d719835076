// Matrix products in f32 whose right operand is packed into panels, for vectors of at most 32 bytes (Goto & van de
// Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008).
#pragma once
#include "kernels/plans/matmul_job.h"

namespace trireme {

/// c [batch, m, n] (+)= op(a) op(b) (+ bias [n]), ReLU: the product of the job. All views are f32; bias may be empty.
/// Bits do not depend on the number of threads.
void packed_product(const View& c, const View& a, const View& b, const View& bias, const MatMulJob&);

}  // namespace trireme
