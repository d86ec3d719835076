#include "framework/metrics.h"

#include "framework/ops.h"

namespace trireme {

Index count_correct(const Tensor& logits, const Tensor& labels) {
  Index rows = labels.numel();
  check(logits.rank() == 2 && logits.dim(0) == rows, "count_correct", "logits {} for {} labels", logits.shape(), rows);
  Tensor guess = argmax(logits);
  const auto *g = guess.data<std::int64_t>(), *l = labels.data<std::int64_t>();
  Index correct = 0;
  for (Index i = 0; i < rows; ++i) correct += g[i] == l[i];
  return correct;
}

}  // namespace trireme
