// Softmax and losses, over the last axis. x, y, dx and dy of one contract have one shape and one floating type; labels
// are i64 [rows], rows counting all axes but the last. Throw Error for operands that do not fit.
#pragma once
#include <limits>

#include "kernels/core/view.h"

namespace trireme {

/// Options of F.cross_entropy.
struct CrossEntropyOptions {
  double label_smoothing = 0;  ///< s in [0, 1]: target (1 - s) one_hot + s / classes
  Index ignore_index = -100;   ///< rows with this label count for nothing
  /// As ignore_index: no row is ignored, every label must be a class.
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
/// F.cross_entropy, reduction none: loss [rows] (f32, f64 for f64; 0 for ignored rows) and log_p [rows, classes] =
/// log_softmax(x) (x's type). Throws Error naming the row when a label lies outside [0, classes) and is not
/// ignore_index (on CUDA when the host next waits for the device).
struct CrossEntropy {
  static constexpr char name[] = "cross_entropy";  ///< in errors, profiles and census()
  /// loss and log_p are outputs; x are the logits [rows, classes], whose block log_p may be.
  using Fn = void(View loss, View log_p, View x, View label, const CrossEntropyOptions&);
};
/// dx = (exp(log_p) - target) * scale[0], 0 in ignored rows; scale holds one number of the loss's type.
struct CrossEntropyBackward {
  static constexpr char name[] = "cross_entropy_backward";  ///< in errors, profiles and census()
  /// dx is the output, which may be log_p's block; log_p, label and the options are those of forward.
  using Fn = void(View dx, View log_p, View label, View scale, const CrossEntropyOptions&);
};

}  // namespace kernel
}  // namespace trireme
