// The numbers of one convolution, taken from its views and checked once for all implementations.
#pragma once
#include "kernels/conv.h"

namespace trireme {

struct ConvShape {
  int dims = 0;                      ///< spatial axes, 1 to 3
  Index n = 0, c_in = 0, c_out = 0;  ///< c_in, c_out: of all groups together
  Extents in{1, 1, 1}, out{1, 1, 1}, filter{1, 1, 1};
  ConvOptions options;

  Index in_cells() const { return in[0] * in[1] * in[2]; }
  Index out_cells() const { return out[0] * out[1] * out[2]; }
  Index filter_cells() const { return filter[0] * filter[1] * filter[2]; }
  Index group_in() const { return c_in / options.groups; }
  Index group_out() const { return c_out / options.groups; }
  /// Input position along axis d of filter cell f at output position o; may lie in the padding.
  Index at(int d, Index o, Index f) const {
    return o * options.stride[d] - options.pad_begin[d] + f * options.dilation[d];
  }
};

/// From input x, filter w and output y (or their gradients). Throws Error when they do not fit one another.
ConvShape conv_shape(const View& x, const View& w, const View& y, const ConvOptions& o, std::string_view op);

/// The gradient by the input of a convolution with stride 1 is itself a convolution: of dy, with the filter turned
/// around (cells reversed, input and output channels swapped). 1 x 1 filters without padding serve with any stride:
/// their result is then spread over the cells that the forward read.
bool turns(const ConvShape&);
/// The convolution that turns() speaks of: from dy's cells to dx's, or to as many as dy has.
ConvShape turned(const ConvShape&);

/// y += residual, then ReLU if asked: for convolutions that cannot do it themselves.
void add_residual(const View& y, const View& residual, bool relu);

// f64, through Eigen: see conv_f64.cpp. The views' shapes have been checked and n > 0.
void conv_f64(View y, View x, View w, View bias, const ConvShape&);
void conv_backward_input_f64(View dx, View dy, View w, const ConvShape&);
void conv_backward_weight_f64(View dw, View x, View dy, const ConvShape&, bool accumulate);

// f32 with AVX-512, where it beats oneDNN: see conv_direct.cpp. Few input channels: output and filter
// gradient; many: filter gradient. Call only what the first two functions allow, with n > 0.
bool conv_direct_few(const View& x, const ConvShape&);
bool conv_direct_many(const View& x, const ConvShape&);
void conv_direct(View y, View x, View w, View bias, const ConvShape&);
void conv_backward_weight_few(View dw, View dbias, View x, View dy, const ConvShape&, bool accumulate);
void conv_backward_weight_many(View dw, View x, View dy, const ConvShape&, bool accumulate);

// f32 with AVX-512, 3 x 3 with stride 1: see conv_winograd.cpp. False where they do not suit or do not pay.
// y = conv(x, w), then bias, residual (perhaps in y's own block) and ReLU if asked; dx (+)=; dw (+)=.
bool conv_winograd(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                   const ConvShape&);
bool conv_winograd_backward_input(const View& dx, const View& dy, const View& w, const ConvShape&, bool accumulate);
bool conv_winograd_backward_weight(const View& dw, const View& x, const View& dy, const ConvShape&, bool accumulate);

}  // namespace trireme
