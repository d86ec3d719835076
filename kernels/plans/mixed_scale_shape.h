// The numbers of a mixed-scale dense layer, taken from its views and checked once for all backends.
#pragma once
#include "kernels/contracts/mixed_scale.h"

namespace trireme {

/// Three spatial axes always: a plane is a volume of one plane, whose filter has one tap along depth.
struct MixedScaleShape {
  Index n = 0, channels = 0, outputs = 0, dilation = 1;
  Index width = 0;                                         ///< channels of the whole block: elements from cell to cell
  Extents extent{1, 1, 1}, begin{0, 0, 0}, size{1, 1, 1};  ///< of the block and of the box, outermost axis first
  Index planes = 1;                                        ///< taps along depth: 1 or 3
  Index taps() const { return planes * 9; }
  Index cells() const { return extent[0] * extent[1] * extent[2]; }
  Index box_cells() const { return size[0] * size[1] * size[2]; }
  /// Offset in cells of tap t along its axes.
  Extents offset(Index t) const {
    return {planes == 3 ? dilation * (t / 9 - 1) : 0, dilation * (t / 3 % 3 - 1), dilation * (t % 3 - 1)};
  }
};

/// From a block (or its gradient) and the options. Throws Error naming op unless the channels and the box lie in it.
MixedScaleShape mixed_scale_shape(const View& block, const MixedScaleOptions&, std::string_view op);
/// Throws Error naming op unless w (or its gradient) is [outputs, 3, 3(, 3), channels], and bias [outputs] or View{},
/// both of the block's type or of the type that its sums are kept in.
void check_mixed_scale_weights(const MixedScaleShape&, const View& block, const View& w, const View& bias,
                               std::string_view op);
/// Throws Error naming op unless gradient, a block's, is f32 or f64 and w is the layer's filter, of its type or, beside
/// f32, of two bytes.
void check_mixed_scale_input_gradient(const MixedScaleShape&, const View& gradient, const View& w, std::string_view op);
/// Throws Error naming op unless gradient has the block's shape, and its type or, beside bf16 and f16, f32.
void check_mixed_scale_gradient(const View& block, const View& gradient, std::string_view op);

}  // namespace trireme
