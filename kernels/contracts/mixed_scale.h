// Contracts of one layer of a mixed-scale dense network (Pelt and Sethian, PNAS 115(2), 2018). A layer works in place
// in a block of features [N, spatial..., C] with 2 or 3 spatial axes: it reads the first channels and writes the
// following ones, so that nothing is concatenated. The filter is w [outputs, 3, 3(, 3), channels]; cells outside the
// block are zero. Kernels throw Error for operands that do not fit.
//
// The order of each sum depends only on the output's position. Results do not depend on the box or the number of
// threads. Nor do they depend on the position of the block's borders, if all cells that are read are in the block or
// are zeros outside the image. So a whole image, overlapping tiles, and ranks that exchange halos give the same bits.
// The exception is the gradient of the weights: a sum over positions, whose order depends on the box.
#pragma once
#include "kernels/contracts/conv.h"

namespace trireme {

/// Channels that a layer reads and writes, the box of positions, and the dilation.
struct MixedScaleOptions {
  Index channels = 0,      ///< input channels [0, channels), at least 1
      outputs = 1;         ///< output channels [channels, channels + outputs), at least 1
  Index dilation = 1;      ///< cells between adjacent taps along each axis, at least 1
  Extents begin{0, 0, 0},  ///< first cell of the box of computed positions, per spatial axis, outermost first
      size{-1, -1, -1};    ///< extents of the box; 0: empty; negative: up to the end of the block
  bool operator==(const MixedScaleOptions&) const = default;  ///< compares all axes, absent ones too
};

namespace kernel {
/// block[p, channels + o] = relu(bias[o] + sum over taps t and c < channels of w[o, t, c] block[p + dilation (t - 1),
/// c]) for the positions p of the box.
struct MixedScaleLayer {
  static constexpr char name[] = "mixed_scale_layer";  ///< in errors, profiles and census()
  /// block is read and written; w and bias [outputs] have its type, or f32 if it is bf16 or f16; bias may be View{}.
  using Fn = void(View block, View w, View bias, const MixedScaleOptions&);
};
/// Gradient of the ReLU, in place: gradient[p, c] = 0 where block[p, c] <= 0, for the layer's output channels c.
/// gradient has the block's shape, and type f32 if the block is bf16 or f16, else the block's type.
struct MixedScaleBackwardRelu {
  static constexpr char name[] = "mixed_scale_backward_relu";  ///< in errors, profiles and census()
  /// gradient is read and written.
  using Fn = void(View gradient, View block, const MixedScaleOptions&);
};
/// gradient[p, c] += sum over taps t and o of w[o, t, c] gradient[p - dilation (t - 1), channels + o] for c < channels
/// and the positions p of the box. The output channels outside of the box count too.
struct MixedScaleBackwardInput {
  static constexpr char name[] = "mixed_scale_backward_input";  ///< in errors, profiles and census()
  /// gradient is read and written; w has its type or the block's type.
  using Fn = void(View gradient, View w, const MixedScaleOptions&);
};
/// dw[o, t, c] (+)= sum over the positions p of the box of gradient[p, channels + o] block[p + dilation (t - 1), c];
/// dbias[o] (+)= sum of gradient[p, channels + o], if given.
struct MixedScaleBackwardWeight {
  static constexpr char name[] = "mixed_scale_backward_weight";  ///< in errors, profiles and census()
  /// dw and dbias are outputs, of the gradient's or the block's type; with accumulate the gradients are added to both.
  using Fn = void(View dw, View dbias, View block, View gradient, const MixedScaleOptions&, bool accumulate);
};

}  // namespace kernel
}  // namespace trireme
