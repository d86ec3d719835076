// Metrics of classification, as counts: sums over ranks do not depend on how rows are divided. Computed on the host.
#pragma once
#include "framework/tensor/tensor.h"

namespace trireme {

/// Rows whose largest logit is at the label (top-1). logits [N, classes] of any type, labels i64 [N]. Throws Error for
/// other shapes and types.
Index count_correct(const Tensor& logits, const Tensor& labels);
/// Rows whose label is among the k >= 1 largest logits (top-k); shapes and errors as above. Of equal logits the one of
/// the lower class counts as larger (which torch.topk leaves open), and a NaN is larger than any number; at the label
/// it never counts, nor does a label that is no class (an ignored one).
Index count_in_top(const Tensor& logits, const Tensor& labels, Index k);

}  // namespace trireme
