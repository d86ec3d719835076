// One layer of a mixed-scale dense network (Pelt and Sethian, PNAS 115(2), 2018), in place in one block of features
// [N, spatial..., C] of 2 or 3 spatial axes: it reads the first channels and writes those that follow them, so that
// nothing is concatenated. The filter is w [outputs, 3, 3(, 3), channels]; beyond the block's borders lie zeros. All
// throw Error for operands that do not fit.
//
// Every number is summed in an order of its own place: it does not depend on the box, on where the block's borders lie
// (as long as what is read lies inside, or is the zeros beyond the image) or on the number of threads. So an image as a
// whole, in overlapping tiles, and over ranks that exchange halos has the same bits (sums over positions, which are the
// weights' gradients, apart: these depend on the box).
#pragma once
#include "kernels/contracts/conv.h"

namespace trireme {

/// Which channels a layer reads and writes, where, and how far its taps reach.
struct MixedScaleOptions {
  Index channels = 0,      ///< it reads channels [0, channels), at least 1
      outputs = 1;         ///< and writes [channels, channels + outputs), at least 1
  Index dilation = 1;      ///< cells between neighbouring taps along each axis, at least 1
  Extents begin{0, 0, 0},  ///< the box of positions that are computed: its first cell per spatial axis, outermost first
      size{-1, -1, -1};    ///< and its extents, 0: nothing; negative: up to the block's end
  bool operator==(const MixedScaleOptions&) const = default;  ///< all axes, used or not
};

namespace kernel {
/// block[p, channels + o] = relu(bias[o] + sum over taps t and c < channels of w[o, t, c] block[p + dilation (t - 1),
/// c]) for the positions p of the box.
struct MixedScaleLayer {
  static constexpr char name[] = "mixed_scale_layer";  ///< in errors, profiles and census()
  /// block is read and written; w and bias [outputs] of its type, or f32 beside bf16 and f16; bias may be View{}.
  using Fn = void(View block, View w, View bias, const MixedScaleOptions&);
};
/// In the gradient of a block, which has the block's shape, in f32 beside bf16 and f16, else in the block's type:
/// gradient[p, c] = 0 where block[p, c] is not above 0, for the layer's own channels c: the gradient of its relu.
struct MixedScaleBackwardRelu {
  static constexpr char name[] = "mixed_scale_backward_relu";  ///< in errors, profiles and census()
  /// gradient is read and written.
  using Fn = void(View gradient, View block, const MixedScaleOptions&);
};
/// gradient[p, c] += sum over taps t and o of w[o, t, c] gradient[p - dilation (t - 1), channels + o] for c < channels
/// and the positions p of the box; what the layer's own channels hold outside of the box counts as well.
struct MixedScaleBackwardInput {
  static constexpr char name[] = "mixed_scale_backward_input";  ///< in errors, profiles and census()
  /// gradient is read and written; w of its type, or of the block's.
  using Fn = void(View gradient, View w, const MixedScaleOptions&);
};
/// dw[o, t, c] (+)= sum over the positions p of the box of gradient[p, channels + o] block[p + dilation (t - 1), c];
/// dbias[o] (+)= sum of gradient[p, channels + o], if given.
struct MixedScaleBackwardWeight {
  static constexpr char name[] = "mixed_scale_backward_weight";  ///< in errors, profiles and census()
  /// dw and dbias are outputs, of the gradient's type or of the block's; accumulate adds to both.
  using Fn = void(View dw, View dbias, View block, View gradient, const MixedScaleOptions&, bool accumulate);
};

}  // namespace kernel
}  // namespace trireme
