#include "kernels/cpu/product.h"

#include <Eigen/Core>

#include "kernels/cpu/parallel.h"

namespace trireme {
namespace {
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using In = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;
using Out = Eigen::Map<Matrix, Eigen::Unaligned, Stride>;

In map(MatrixRef b, Index rows, Index cols) {
  return b.transposed ? In(b.data, cols, rows, Stride(b.leading)) : In(b.data, rows, cols, Stride(b.leading));
}
}  // namespace

void product(double* c, Index leading_c, MatrixRef a, MatrixRef b, Index m, Index n, Index k, bool accumulate) {
  if (m == 0 || n == 0) return;
  Out out(c, m, n, Stride(leading_c));
  if (!accumulate) out.setZero();
  if (k == 0) return;
  In l = map(a, m, k), r = map(b, k, n);
  if (a.transposed && b.transposed)
    out.noalias() += l.transpose() * r.transpose();
  else if (a.transposed)
    out.noalias() += l.transpose() * r;
  else if (b.transposed)
    out.noalias() += l * r.transpose();
  else
    out.noalias() += l * r;
}

void product_parallel(double* c, Index leading_c, MatrixRef a, MatrixRef b, Index m, Index n, Index k,
                      bool accumulate) {
  parallel_for(m, n * std::max<Index>(k, 1), [&](Index begin, Index end) {
    MatrixRef rows{a.data + begin * (a.transposed ? 1 : a.leading), a.leading, a.transposed};
    product(c + begin * leading_c, leading_c, rows, b, end - begin, n, k, accumulate);
  });
}

}  // namespace trireme
