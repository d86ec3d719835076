// The numbers of one pooling, taken from its views and checked once. Axes are aligned to the end: axis 2 is
// the innermost one whatever the rank, and absent axes have extent 1.
#pragma once
#include "kernels/contracts/pool.h"

namespace trireme {

struct PoolShape {
  Index n = 0, channels = 0;
  Extents in{1, 1, 1}, out{1, 1, 1}, window{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad{0, 0, 0};

  Index in_cells() const { return in[0] * in[1] * in[2]; }
  Index out_cells() const { return out[0] * out[1] * out[2]; }
  Index window_cells() const { return window[0] * window[1] * window[2]; }

  /// Calls f(k, cell) for window cell k of the output position (o0, o1, o2), where it lies at input cell
  /// `cell`; cells in the padding are left out.
  template <class F>
  void for_window(Index o0, Index o1, Index o2, F&& f) const {
    Index k = 0;
    for (Index w0 = 0; w0 < window[0]; ++w0)
      for (Index w1 = 0; w1 < window[1]; ++w1)
        for (Index w2 = 0; w2 < window[2]; ++w2, ++k) {
          Index i0 = o0 * stride[0] - pad[0] + w0 * dilation[0], i1 = o1 * stride[1] - pad[1] + w1 * dilation[1];
          Index i2 = o2 * stride[2] - pad[2] + w2 * dilation[2];
          bool inside = i0 >= 0 && i0 < in[0] && i1 >= 0 && i1 < in[1] && i2 >= 0 && i2 < in[2];
          if (inside) f(k, (i0 * in[1] + i1) * in[2] + i2);
        }
  }
};

/// [N, spatial..., C] of input x [N, spatial..., C]; along an axis (in + pad_begin + pad_end - dilation (window - 1) -
/// 1) / stride + 1. Throws Error naming op when the options do not suit x; padding must be smaller than the window.
Shape pool_output_shape(const Shape& x, const PoolOptions& o, std::string_view op);
/// The same of bias_relu_pool_dropout, whose windows do not overlap.
Shape pool_block_output_shape(const Shape& x, const PoolOptions& o, std::string_view op);
/// Of max_pool's index: u8 up to 255 cells in a window, else i32.
DType pool_index_type(const Shape& x, const PoolOptions& o);

/// From the operands of max_pool, which are checked; x and dx, y and dy are alike. Throws Error when they do not fit
/// one another.
PoolShape max_pool_shape(const View& x, const View& y, const View& index, const PoolOptions& o, std::string_view op);
/// The same of avg_pool, whose dilation must be 1.
PoolShape avg_pool_shape(const View& x, const View& y, const PoolOptions& o, std::string_view op);
/// The same of bias_relu_pool_dropout; p must lie in [0, 1].
PoolShape pool_block_shape(const View& y, const View& index, const View& x, const View& bias, const View& sample,
                           const PoolOptions& o, double p);
/// The same of bias_relu_pool_dropout_backward.
PoolShape pool_block_backward_shape(const View& dx, const View& dbias, const View& dy, const View& index,
                                    const PoolOptions& o, double p);

/// In the index of bias_relu_pool_dropout: no gradient passes.
constexpr std::uint8_t no_gradient = 255;

}  // namespace trireme
