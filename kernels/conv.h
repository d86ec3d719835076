// Convolution over 1 to 3 spatial dimensions. Activations N,spatial...,C; filters O,spatial...,I/groups.
#pragma once
#include <array>

#include "kernels/view.h"

namespace trireme {

using Extents = std::array<Index, 3>;  ///< one number per spatial axis, outermost first; unused ones are ignored

struct ConvOptions {
  Extents stride{1, 1, 1};
  Extents pad_begin{0, 0, 0}, pad_end{0, 0, 0};  ///< zeros before and after each spatial axis: may differ
  Extents dilation{1, 1, 1};                     ///< 1 = dense filter
  Index groups = 1;
  bool relu = false;  ///< y = max(0, conv + bias)
  /// Not 0: as long as it stays the same, so does the filter at its address; what a kernel made of it may be kept.
  std::uint64_t filter_version = 0;
  bool operator==(const ConvOptions&) const = default;
};

namespace kernel {
/// y = conv(x, w) + bias (+ residual), then ReLU if asked. bias [O] or none; residual: y's shape, or none;
/// it may be y's own block.
struct Conv {
  static constexpr char name[] = "conv";
  using Fn = void(View y, View x, View w, View bias, View residual, const ConvOptions&);
};
/// dx (+)= gradient by the input. Ignores options.relu (dy is already masked).
struct ConvBackwardInput {
  static constexpr char name[] = "conv_backward_input";
  using Fn = void(View dx, View dy, View w, const ConvOptions&, bool accumulate);
};
/// dw (+)= gradient by the filter; dbias (+)= sum of dy, if given.
struct ConvBackwardWeight {
  static constexpr char name[] = "conv_backward_weight";
  using Fn = void(View dw, View dbias, View x, View dy, const ConvOptions&, bool accumulate);
};

}  // namespace kernel
}  // namespace trireme
