// Checks of the operands of cross entropy, for all backends. Kernels check the values of labels.
#pragma once
#include "kernels/plans/checks.h"

namespace trireme {

/// Throws Error naming op unless label is i64 with one number per row of logits.
inline void check_label_type(const View& label, const Shape& logits, std::string_view op) {
  check(label.dtype == DType::i64 && label.numel() == row_count(logits), op,
        "got labels {} {} for logits {}, expected i64 [{}]", label.dtype, label.shape, logits, row_count(logits));
}
/// The type of losses: f64 for f64, else f32.
inline DType loss_type(DType logits) { return logits == DType::f64 ? DType::f64 : DType::f32; }
/// Throws Error naming op unless loss has loss_type() and one number per row of x.
inline void check_loss(const View& loss, const View& x, std::string_view op) {
  check(loss.dtype == loss_type(x.dtype) && loss.numel() == row_count(x.shape), op, "got loss {} {} for logits {} {}",
        loss.dtype, loss.shape, x.dtype, x.shape);
}
/// Throws Error naming op unless scale is one number of loss_type().
inline void check_scale(const View& scale, const View& dx, std::string_view op) {
  const DType expected = loss_type(dx.dtype);
  check(scale.dtype == expected && scale.numel() == 1, op, "got scale {} {}, expected one {}", scale.dtype, scale.shape,
        expected);
}

}  // namespace trireme
