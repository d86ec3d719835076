// MixedScaleShape: the extents of a mixed-scale dense layer, from its views, checked once for all backends.
#pragma once
#include "kernels/contracts/mixed_scale.h"

namespace trireme {

/// Always three spatial axes: a 2-D image has one plane, and its filter one tap along depth.
struct MixedScaleShape {
  Index n = 0, channels = 0, outputs = 0, dilation = 1;
  Index width = 0;  ///< channels of the whole block: elements from one cell to the next
  Extents extent{1, 1, 1}, begin{0, 0, 0},
      size{1, 1, 1};  ///< extent of the block; begin and size of the box; outermost axis first
  Index planes = 1;   ///< taps along depth: 1 or 3
  Index taps() const { return planes * 9; }
  Index cells() const { return extent[0] * extent[1] * extent[2]; }
  Index box_cells() const { return size[0] * size[1] * size[2]; }
  /// Offset in cells of tap t along its axes.
  Extents offset(Index t) const {
    return {planes == 3 ? dilation * (t / 9 - 1) : 0, dilation * (t / 3 % 3 - 1), dilation * (t % 3 - 1)};
  }
};

/// From a block (or its gradient) and the options. Throws Error naming op unless the channels and the box are inside
/// it.
MixedScaleShape mixed_scale_shape(const View& block, const MixedScaleOptions&, std::string_view op);
/// Throws Error naming op unless w (or its gradient) is [outputs, 3, 3(, 3), channels] and bias is [outputs] or View{},
/// both of the block's type or the type of its sums.
void check_mixed_scale_weights(const MixedScaleShape&, const View& block, const View& w, const View& bias,
                               std::string_view op);
/// Throws Error naming op unless gradient (of a block) is f32 or f64, and w is the layer's filter of the same type, or
/// bf16 or f16 if gradient is f32.
void check_mixed_scale_input_gradient(const MixedScaleShape&, const View& gradient, const View& w, std::string_view op);
/// Throws Error naming op unless gradient has the block's shape and type, or f32 if the block is bf16 or f16.
void check_mixed_scale_gradient(const View& block, const View& gradient, std::string_view op);

}  // namespace trireme
