// What losses of labels share: which labels fit, and what one row is of the global batch's mean.
#pragma once
#include "framework/ops/loss.h"

namespace trireme::ops {

/// Throws Error unless there is an i64 label for each row of x [..., C].
void check_labels(const char* op, const Tensor& x, const Tensor& labels);
/// 1 / what the labels of the global batch count for, of which `labels` are those at hand; 0 where none counts. rows:
/// the tensor whose BatchContext tells of the global batch, or that of the labels does.
double share_of_row(const char* op, const Tensor& rows, const Tensor& labels, const LabelLossOptions&);

/// linear_cross_entropy() by chunks of so many rows; 0: as many as it would take.
Tensor linear_cross_entropy_in_chunks(const Tensor& x, const Tensor& w, const Tensor& labels, const LabelLossOptions&,
                                      const Tensor& bias, Index chunk);

}  // namespace trireme::ops
