#include "framework/metrics/metrics.h"

#include "kernels/core/dtype.h"

namespace trireme {

Index count_correct(const Tensor& logits, const Tensor& labels) { return count_in_top(logits, labels, 1); }

Index count_in_top(const Tensor& logits, const Tensor& labels, Index k) {
  const char* op = "count_in_top";
  const Index rows = labels.numel();
  check(logits.rank() == 2 && logits.dim(0) == rows, op, "logits {} for {} labels", logits.shape(), rows);
  check(labels.dtype() == DType::i64 && k >= 1, op, "labels are {} and k is {}, expected i64 and at least 1",
        labels.dtype(), k);
  const std::vector<double> all = logits.to_vector(), label_of = labels.to_vector();
  const Index classes = logits.dim(1);
  Index count = 0;
  for (Index row = 0; row < rows; ++row) {
    const double* x = all.data() + row * classes;
    const auto label = static_cast<Index>(label_of[static_cast<std::size_t>(row)]);
    if (label < 0 || label >= classes) continue;
    Index ahead = 0;
    for (Index c = 0; c < classes; ++c) ahead += x[c] > x[label] || (x[c] == x[label] && c < label) || x[c] != x[c];
    count += x[label] == x[label] && ahead < k;
  }
  return count;
}

}  // namespace trireme
