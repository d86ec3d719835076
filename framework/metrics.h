// Counts that do not depend on how rows are divided among ranks.
#pragma once
#include "framework/tensor.h"

namespace trireme {

/// Rows whose largest logit (the first of equals) is at the label. logits [N, classes], labels i64 [N].
Index count_correct(const Tensor& logits, const Tensor& labels);

}  // namespace trireme
