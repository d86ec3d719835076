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
/// y as Conv writes it, and of that, for the batch norm behind it, mean [C] and m2 [C] (sum of squared deviations from
/// mean; both f32, f64 for f64), as BatchNormMoments gives them.
///
/// For bf16 and f16 a backend may take them from sums of y and of y^2 in f32, gathered while y is computed, of y as
/// stored or as it was before it was rounded (cuDNN does not say): m2 = max(0, sum y^2 - (sum y)^2 / rows). With d the
/// relative error of such a sum (1e-5 for a million rows added in tiles) the mean is off by d times the mean of |y|,
/// and m2 by the share 3 d (1 + mean^2 / variance). For comparison, to round y to bf16 adds noise of 3e-6 mean^2 to its
/// variance, to f16 of 4e-8 mean^2.
struct ConvMoments {
  static constexpr char name[] = "conv_moments";
  using Fn = void(View y, View x, View w, View bias, View mean, View m2, const ConvOptions&);
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
