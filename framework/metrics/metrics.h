// Counts that do not depend on how rows are divided among ranks.
#pragma once
#include "framework/tensor/tensor.h"

namespace trireme {

/// Rows whose largest logit is at the label. logits [N, classes], labels i64 [N].
Index count_correct(const Tensor& logits, const Tensor& labels);
/// Rows whose label is among the k largest logits. Of equal logits the one of the lower class counts as larger (which
/// torch.topk leaves open), and a NaN is larger than any number; at the label it never counts, nor does a label that is
/// no class (an ignored one).
Index count_in_top(const Tensor& logits, const Tensor& labels, Index k);

}  // namespace trireme
