// Contracts of pooling and resampling over 1 to 3 spatial axes: x [N, spatial..., C], y as in pool_output_shape()
// (kernels/plans/pool_shape.h), of the same floating type. Kernels throw Error for operands that do not fit.
#pragma once
#include "kernels/contracts/conv.h"
#include "kernels/core/random.h"

namespace trireme {

/// Options of pooling; extents per spatial axis, outermost first, in cells.
struct PoolOptions {
  Extents window{1, 1, 1};     ///< >= 1 (PyTorch's kernel_size)
  Extents stride{1, 1, 1};     ///< >= 1 (PyTorch's default is the window)
  Extents pad_begin{0, 0, 0},  ///< >= 0, smaller than the window: padding before x with -inf (max) or 0 (average)
      pad_end{0, 0, 0};        ///< as pad_begin, after x
  Extents dilation{1, 1, 1};   ///< >= 1; for max pooling only
  /// Average pooling divides by the whole window, padding included (PyTorch's count_include_pad).
  bool count_padding = true;
  bool ceil_mode = false;  ///< max_pool() and avg_pool() turn it into padding; kernels ignore it
  bool operator==(const PoolOptions&) const = default;  ///< compares all axes, absent ones too
};

/// How a cell of the output is computed. nearest: from one cell; linear: from the two nearest cells along the axis;
/// area: the mean of all cells that it covers (F.adaptive_avg_pool).
enum class ResampleMode : std::uint8_t { nearest, linear, area };
/// Resampling of one spatial axis from `in` to `out` cells (formula: kernels/plans/resample_taps.h).
struct ResampleAxis {
  Index in = 1,                               ///< cells of the input, at least 1
      out = 1;                                ///< cells of the output, at least 1
  ResampleMode mode = ResampleMode::nearest;  ///< how a cell of the output is computed
  /// Linear only: align the centres of the outermost cells (true) or their outer edges (false).
  bool align_corners = false;
  double step = 1;  ///< input cells per output cell: in / out, or 1 / scale factor; not used for area
  bool operator==(const ResampleAxis&) const = default;  ///< all members are equal
};
/// One per spatial axis, outermost first; entries of absent axes come last and are ignored.
using ResampleAxes = std::array<ResampleAxis, 3>;

namespace kernel {
/// y = maximum of each window (F.max_pool2d). index, of y's shape, is the maximum's position in its window, row-major:
/// u8, or i32 if a window has more than 255 cells.
struct MaxPool {
  static constexpr char name[] = "max_pool";  ///< in errors, profiles and census()
  /// y and index are outputs.
  using Fn = void(View y, View index, View x, const PoolOptions&);
};
/// dx = 0, plus dy at the maximum's cell of each window.
struct MaxPoolBackward {
  static constexpr char name[] = "max_pool_backward";  ///< in errors, profiles and census()
  /// dx is the output; index and the options as in forward.
  using Fn = void(View dx, View dy, View index, const PoolOptions&);
};
/// y = sum of each window / number of its cells (F.avg_pool2d): all cells if count_padding, else the cells inside the
/// input.
struct AvgPool {
  static constexpr char name[] = "avg_pool";  ///< in errors, profiles and census()
  /// y is the output. Throws Error for a dilation other than 1.
  using Fn = void(View y, View x, const PoolOptions&);
};
/// dx = 0, plus dy / cells at every cell of each window.
struct AvgPoolBackward {
  static constexpr char name[] = "avg_pool_backward";  ///< in errors, profiles and census()
  /// dx is the output; the options as in forward.
  using Fn = void(View dx, View dy, const PoolOptions&);
};
/// y = x resampled along each spatial axis (F.interpolate, F.adaptive_avg_pool2d): x [N, in..., C], y [N, out..., C].
struct Resample {
  static constexpr char name[] = "resample";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View x, const ResampleAxes&);
};
/// dx = gradient of Resample: each cell of dy, distributed over the cells of x by their weights.
struct ResampleBackward {
  static constexpr char name[] = "resample_backward";  ///< in errors, profiles and census()
  /// dx is the output; the axes as in forward.
  using Fn = void(View dx, View dy, const ResampleAxes&);
};

/// The end of a convolution block in one pass over x: y = dropout(max_pool(relu(x + bias))). Windows do not overlap
/// (stride == window), have at most 254 cells, and no padding or dilation. bias [C] or none; p = 0: no dropout (sample
/// and key as in Dropout). index (u8) is the maximum's cell, or 255 if no gradient passes, because of ReLU or dropout.
struct BiasReluPoolDropout {
  static constexpr char name[] = "bias_relu_pool_dropout";  ///< in errors, profiles and census()
  /// y and index are outputs; bias and sample may be View{}. Throws Error for p outside [0, 1].
  using Fn = void(View y, View index, View x, View bias, View sample, const PoolOptions&, double p, MaskKey key);
};
/// dx of all cells; dbias [C] (+)= sum of dx over all axes but the channels, if given, in the same pass.
struct BiasReluPoolDropoutBackward {
  static constexpr char name[] = "bias_relu_pool_dropout_backward";  ///< in errors, profiles and census()
  /// dx and dbias are outputs; dbias may be View{}; index, options and p as in forward.
  using Fn = void(View dx, View dbias, View dy, View index, const PoolOptions&, double p, bool accumulate_bias);
};

}  // namespace kernel
}  // namespace trireme
