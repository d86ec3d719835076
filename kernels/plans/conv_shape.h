// ConvShape: the extents of one convolution, from its views, checked once for all implementations.
#pragma once
#include "kernels/contracts/conv.h"

namespace trireme {

/// Extents are per spatial axis, outermost first; extents of absent axes are 1.
struct ConvShape {
  int dims = 0;                      ///< spatial axes, 1 to 3
  Index n = 0, c_in = 0, c_out = 0;  ///< c_in and c_out: sums over all groups
  Extents in{1, 1, 1}, out{1, 1, 1}, filter{1, 1, 1};
  ConvOptions options;  ///< absent axes have stride and dilation 1 and no padding

  Index in_cells() const { return in[0] * in[1] * in[2]; }
  Index out_cells() const { return out[0] * out[1] * out[2]; }
  Index filter_cells() const { return filter[0] * filter[1] * filter[2]; }
  Index group_in() const { return c_in / options.groups; }
  Index group_out() const { return c_out / options.groups; }
  /// Input position along axis d of filter cell f at output position o; may be in the padding.
  Index at(int d, Index o, Index f) const {
    return o * options.stride[d] - options.pad_begin[d] + f * options.dilation[d];
  }
};

/// The output shape [N, spatial..., O] for input x [N, spatial..., I] and filter w [O, spatial..., I/groups]. Along an
/// axis it is (in + pad_begin + pad_end - dilation (filter - 1) - 1) / stride + 1. Throws Error naming op if they do
/// not fit.
Shape conv_output_shape(const Shape& x, const Shape& w, const ConvOptions& o, std::string_view op);
/// From input x, filter w and output y (or their gradients). Throws Error naming op if they do not fit.
ConvShape conv_shape(const View& x, const View& w, const View& y, const ConvOptions& o, std::string_view op);

/// As above, for all operands of kernel::Conv; also checks types, bias and residual.
ConvShape conv_forward_shape(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                             const ConvOptions& o);
/// As above, for kernel::ConvBackwardInput.
ConvShape conv_backward_input_shape(const View& dx, const View& dy, const View& w, const ConvOptions& o);
/// As above, for kernel::ConvBackwardWeight.
ConvShape conv_backward_weight_shape(const View& dw, const View& dbias, const View& x, const View& dy,
                                     const ConvOptions& o);

}  // namespace trireme
