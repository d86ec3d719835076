// Helpers that losses of labels share: the check of labels, and the share of a row in the global batch's mean.
#pragma once
#include "framework/ops/loss.h"

namespace trireme::ops {

/// Throws Error unless there is one i64 label per row of x [..., C].
void check_labels(const char* op, const Tensor& x, const Tensor& labels);
/// Throws Error for a label smoothing or a z-loss out of range.
void check_label_options(const char* op, const LabelLossOptions&);
/// 1 / (sum of the weights of all labels in the global batch), 0 if no label counts. labels: this tensor's labels.
/// rows: the tensor whose BatchContext describes the global batch; if it has none, that of labels does.
double share_of_row(const char* op, const Tensor& rows, const Tensor& labels, const LabelLossOptions&);

/// linear_cross_entropy() by chunks of this number of rows; 0: the default.
Tensor linear_cross_entropy_in_chunks(const Tensor& x, const Tensor& w, const Tensor& labels, const LabelLossOptions&,
                                      const Tensor& bias, Index chunk);

}  // namespace trireme::ops
