// Softmax and losses, over the last axis. Labels are i64.
#pragma once
#include <limits>

#include "kernels/core/view.h"

namespace trireme {

struct CrossEntropyOptions {
  double label_smoothing = 0;  ///< PyTorch's: target (1 - s) one_hot + s / classes
  Index ignore_index = -100;   ///< rows with this label count for nothing
  static constexpr Index ignore_none = std::numeric_limits<Index>::min();  ///< every label must be a class
};

namespace kernel {

struct Softmax {
  static constexpr char name[] = "softmax";
  using Fn = void(View y, View x);
};
struct SoftmaxBackward {
  static constexpr char name[] = "softmax_backward";
  using Fn = void(View dx, View dy, View y);
};
struct LogSoftmax {
  static constexpr char name[] = "log_softmax";
  using Fn = void(View y, View x);
};
struct LogSoftmaxBackward {
  static constexpr char name[] = "log_softmax_backward";
  using Fn = void(View dx, View dy, View y);
};
/// loss [rows] (accumulator type; 0 for ignored rows) and log_p [rows, classes] = log_softmax(x) (x's type).
/// Throws Error naming the row when a label lies outside [0, classes) and is not ignore_index.
struct CrossEntropy {
  static constexpr char name[] = "cross_entropy";
  using Fn = void(View loss, View log_p, View x, View label, const CrossEntropyOptions&);
};
/// dx = (softmax - target) * scale[0]; scale is a scalar tensor of the loss's type.
struct CrossEntropyBackward {
  static constexpr char name[] = "cross_entropy_backward";
  using Fn = void(View dx, View log_p, View label, View scale, const CrossEntropyOptions&);
};

}  // namespace kernel
}  // namespace trireme
