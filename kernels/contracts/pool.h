// Pooling and resampling over 1 to 3 spatial axes: x [N, spatial..., C], y as pool_output_shape()
// (kernels/plans/pool_shape.h) says, one floating type. Throw Error for operands that do not fit.
#pragma once
#include "kernels/contracts/conv.h"
#include "kernels/core/random.h"

namespace trireme {

/// Options of a pooling; extents per spatial axis, outermost first, in cells.
struct PoolOptions {
  Extents window{1, 1, 1};     ///< >= 1 (PyTorch's kernel_size)
  Extents stride{1, 1, 1};     ///< >= 1; PyTorch's default is the window instead
  Extents pad_begin{0, 0, 0},  ///< >= 0, smaller than the window: -inf (max) or 0 (average) before each axis
      pad_end{0, 0, 0};        ///< the same after each axis
  Extents dilation{1, 1, 1};   ///< >= 1; max pooling only
  bool count_padding = true;   ///< average pooling: divide by the whole window (PyTorch's count_include_pad)
  bool ceil_mode = false;      ///< ops only, which turn it into padding: kernels ignore it
  bool operator==(const PoolOptions&) const = default;  ///< all axes, used or not
};

/// nearest: one cell; linear: the two beside a point; area: all that a cell of the output covers (F.adaptive_avg_pool).
enum class ResampleMode : std::uint8_t { nearest, linear, area };
/// How one spatial axis is resampled (kernel::Resample), `in` cells to `out`. kernels/plans/resample_taps.h has the
/// rule.
struct ResampleAxis {
  Index in = 1, out = 1;
  ResampleMode mode = ResampleMode::nearest;
  bool align_corners = false;  ///< linear: the outermost cells lie on each other by their centres, not by their edges
  double step = 1;  ///< cells of the input per cell of the output: in / out, or 1 / scale factor; not for area
  bool operator==(const ResampleAxis&) const = default;
};
/// One for each spatial axis, outermost first; absent ones come last and are ignored.
using ResampleAxes = std::array<ResampleAxis, 3>;

namespace kernel {
/// y = largest of each window; index (u8, or i32 when a window has more than 255 cells) = its cell, row-major in the
/// window.
struct MaxPool {
  static constexpr char name[] = "max_pool";  ///< in errors, profiles and census()
  /// y and index are outputs.
  using Fn = void(View y, View index, View x, const PoolOptions&);
};
/// dx = 0, plus dy at the cell that won each window.
struct MaxPoolBackward {
  static constexpr char name[] = "max_pool_backward";  ///< in errors, profiles and census()
  /// dx is the output; index and the options are those of forward.
  using Fn = void(View dx, View dy, View index, const PoolOptions&);
};
/// y = sum of each window / its cells (F.avg_pool2d): all of them, or those inside the input (count_padding).
struct AvgPool {
  static constexpr char name[] = "avg_pool";  ///< in errors, profiles and census()
  /// y is the output. Throws Error for a dilation other than 1.
  using Fn = void(View y, View x, const PoolOptions&);
};
/// dx = 0, plus dy / cells at every cell of each window.
struct AvgPoolBackward {
  static constexpr char name[] = "avg_pool_backward";  ///< in errors, profiles and census()
  /// dx is the output; the options are those of forward.
  using Fn = void(View dx, View dy, const PoolOptions&);
};
/// y = x resampled along each spatial axis (F.interpolate, F.adaptive_avg_pool2d): x [N, in..., C], y [N, out..., C];
/// in and out as the axes say.
struct Resample {
  static constexpr char name[] = "resample";  ///< in errors, profiles and census()
  /// y is the output.
  using Fn = void(View y, View x, const ResampleAxes&);
};
/// dx = the sum over cells of dy of their shares in x.
struct ResampleBackward {
  static constexpr char name[] = "resample_backward";  ///< in errors, profiles and census()
  /// dx is the output; the axes are those of forward.
  using Fn = void(View dx, View dy, const ResampleAxes&);
};

/// The tail of a convolution block in one pass over x: y = dropout(max_pool(relu(x + bias))), windows that do not
/// overlap (stride == window), at most 254 cells, no padding or dilation. bias [C] or none; p = 0 means no dropout
/// (sample and key as in Dropout). index u8: the winning cell, or 255 where no gradient passes (ReLU cut it or dropout
/// dropped it).
struct BiasReluPoolDropout {
  static constexpr char name[] = "bias_relu_pool_dropout";  ///< in errors, profiles and census()
  /// y and index are outputs; bias and sample may be View{}; p in [0, 1], else Error.
  using Fn = void(View y, View index, View x, View bias, View sample, const PoolOptions&, double p, MaskKey key);
};
/// dx over all cells; dbias (+)= sum of dx over all but channels, if given, in the same pass.
struct BiasReluPoolDropoutBackward {
  static constexpr char name[] = "bias_relu_pool_dropout_backward";  ///< in errors, profiles and census()
  /// dx and dbias are outputs, dbias or View{}; index, options and p are those of forward.
  using Fn = void(View dx, View dbias, View dy, View index, const PoolOptions&, double p, bool accumulate_bias);
};

}  // namespace kernel
}  // namespace trireme
