// Contracts of softmax and losses over the last axis. x, y, dx and dy have the same shape and floating type. labels are
// i64 [rows], where rows is the product of all axes but the last. Kernels throw Error for operands that do not fit.
#pragma once
#include <limits>

#include "kernels/core/view.h"

namespace trireme {

/// Options of F.cross_entropy, and its z-loss.
struct CrossEntropyOptions {
  double label_smoothing = 0;  ///< s in [0, 1]: the target is (1 - s) one_hot + s / classes
  Index ignore_index = -100;   ///< rows with this label have loss 0 and gradient 0
  double z_loss = 0;  ///< z >= 0: adds z (log sum exp x)^2 to the loss of a row (PaLM, arXiv 2204.02311, section 5)
  /// Value for ignore_index: no row is ignored, and every label must be a class.
  static constexpr Index ignore_none = std::numeric_limits<Index>::min();
};

namespace kernel {

/// y = exp(x - max x) / sum exp(x - max x) (torch.softmax, dim -1).
struct Softmax {
  static constexpr char name[] = "softmax";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View x);
};
/// dx = y (dy - sum dy y).
struct SoftmaxBackward {
  static constexpr char name[] = "softmax_backward";  ///< in errors, profiles and census()
  /// dx is the output; y is the output of forward.
  using Fn = void(View dx, View dy, View y);
};
/// y = x - max x - log sum exp(x - max x) (torch.log_softmax, dim -1).
struct LogSoftmax {
  static constexpr char name[] = "log_softmax";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View x);
};
/// dx = dy - exp(y) sum dy.
struct LogSoftmaxBackward {
  static constexpr char name[] = "log_softmax_backward";  ///< in errors, profiles and census()
  /// dx is the output; y is the output of forward.
  using Fn = void(View dx, View dy, View y);
};
/// F.cross_entropy with reduction "none": loss [rows] (f32, or f64 for f64; 0 for ignored rows) and log_p [rows,
/// classes] = log_softmax(x), of x's type. Throws Error naming the row if a label is outside [0, classes) and not
/// ignore_index; on CUDA when the host next waits for the device.
struct CrossEntropy {
  static constexpr char name[] = "cross_entropy";  ///< in errors, profiles and census()
  /// loss, log_p and log_z are outputs; x: logits [rows, classes]; log_p may be the same block as x. log_z [rows], of
  /// the loss's type: log sum exp x, for backward; undefined without a z_loss.
  using Fn = void(View loss, View log_p, View log_z, View x, View label, const CrossEntropyOptions&);
};
/// dx = (exp(log_p) (1 + 2 z log_z) - target) * scale[0]; 0 in ignored rows. scale: one number of the loss's type.
struct CrossEntropyBackward {
  static constexpr char name[] = "cross_entropy_backward";  ///< in errors, profiles and census()
  /// dx is the output, and may be the same block as log_p; log_p, log_z, label and the options as in forward.
  using Fn = void(View dx, View log_p, View log_z, View label, View scale, const CrossEntropyOptions&);
};

}  // namespace kernel
}  // namespace trireme
