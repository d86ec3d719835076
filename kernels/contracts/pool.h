// Pooling over 1 to 3 spatial axes: x [N, spatial..., C], y as pool_output_shape() (kernels/plans/pool_shape.h) says,
// one floating type. Throw Error for operands that do not fit.
#pragma once
#include "kernels/contracts/conv.h"
#include "kernels/core/random.h"

namespace trireme {

struct PoolOptions {
  Extents window{1, 1, 1};
  Extents stride{1, 1, 1};
  Extents pad_begin{0, 0, 0}, pad_end{0, 0, 0};
  Extents dilation{1, 1, 1};  ///< max pooling only
  bool count_padding = true;  ///< average pooling: divide by the whole window (PyTorch's count_include_pad)
  bool operator==(const PoolOptions&) const = default;
};

namespace kernel {
/// y = largest of each window; index (u8, or i32 when a window has more than 255 cells) = its cell, row-major in the
/// window.
struct MaxPool {
  static constexpr char name[] = "max_pool";
  using Fn = void(View y, View index, View x, const PoolOptions&);
};
/// dx = 0, plus dy at the cell that won each window.
struct MaxPoolBackward {
  static constexpr char name[] = "max_pool_backward";
  using Fn = void(View dx, View dy, View index, const PoolOptions&);
};
/// y = sum of each window / its cells (F.avg_pool2d): all of them, or those inside the input (count_padding).
struct AvgPool {
  static constexpr char name[] = "avg_pool";
  using Fn = void(View y, View x, const PoolOptions&);
};
/// dx = 0, plus dy / cells at every cell of each window.
struct AvgPoolBackward {
  static constexpr char name[] = "avg_pool_backward";
  using Fn = void(View dx, View dy, const PoolOptions&);
};

/// The tail of a convolution block in one pass over x: y = dropout(max_pool(relu(x + bias))), windows that do not
/// overlap (stride == window), at most 254 cells, no padding or dilation. bias [C] or none; p = 0 means no dropout
/// (sample and key as in Dropout). index u8: the winning cell, or 255 where no gradient passes (ReLU cut it or dropout
/// dropped it).
struct BiasReluPoolDropout {
  static constexpr char name[] = "bias_relu_pool_dropout";
  using Fn = void(View y, View index, View x, View bias, View sample, const PoolOptions&, double p, MaskKey key);
};
/// dx over all cells; dbias (+)= sum of dx over all but channels, if given, in the same pass.
struct BiasReluPoolDropoutBackward {
  static constexpr char name[] = "bias_relu_pool_dropout_backward";
  using Fn = void(View dx, View dbias, View dy, View index, const PoolOptions&, double p, bool accumulate_bias);
};

}  // namespace kernel
}  // namespace trireme
