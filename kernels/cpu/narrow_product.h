// Matrix products of a few rows with a transposed matrix in f32, as a linear layer computes them for one new token.
// Memory limits them, so each row of the matrix is read once.
#pragma once
#include "kernels/plans/matmul_job.h"

namespace trireme {

/// c [batch, m, n] (+)= a b^T (+ bias [n]), ReLU: the product of the job. All views are f32; bias may be empty. Returns
/// false and does nothing if the job has many rows, or b is not transposed. Bits do not depend on the number of threads
/// or rows.
bool narrow_product(const View& c, const View& a, const View& b, const View& bias, const MatMulJob&);

}  // namespace trireme
