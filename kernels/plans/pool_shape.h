// PoolShape: the extents of one pooling, from its views, checked once for all backends. Axes are aligned to the end:
// axis 2 is the innermost spatial axis for every rank, and absent axes have extent 1.
#pragma once
#include "kernels/contracts/pool.h"

namespace trireme {

struct PoolShape {
  Index n = 0, channels = 0;
  Extents in{1, 1, 1}, out{1, 1, 1}, window{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad{0, 0, 0};

  Index in_cells() const { return in[0] * in[1] * in[2]; }
  Index out_cells() const { return out[0] * out[1] * out[2]; }
  Index window_cells() const { return window[0] * window[1] * window[2]; }

  /// Calls f(k, cell) for each window cell k of output position (o0, o1, o2), where `cell` is its input cell. Cells in
  /// the padding are skipped.
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

/// The output shape [N, spatial..., C] for input x [N, spatial..., C]. Along an axis it is (in + pad_begin + pad_end -
/// dilation (window - 1) - 1) / stride + 1. Throws Error naming op if the options do not suit x; padding must be
/// smaller than the window.
Shape pool_output_shape(const Shape& x, const PoolOptions& o, std::string_view op);
/// As above, for bias_relu_pool_dropout, whose windows do not overlap.
Shape pool_block_output_shape(const Shape& x, const PoolOptions& o, std::string_view op);
/// Type of max_pool's index: u8 for windows of up to 255 cells, else i32.
DType pool_index_type(const Shape& x, const PoolOptions& o);

/// From the operands of max_pool or its backward (dx for x, dy for y). Throws Error naming op if they do not fit.
PoolShape max_pool_shape(const View& x, const View& y, const View& index, const PoolOptions& o, std::string_view op);
/// As above, for avg_pool; the dilation must be 1.
PoolShape avg_pool_shape(const View& x, const View& y, const PoolOptions& o, std::string_view op);
/// As above, for bias_relu_pool_dropout; p must be in [0, 1].
PoolShape pool_block_shape(const View& y, const View& index, const View& x, const View& bias, const View& sample,
                           const PoolOptions& o, double p);
/// As above, for bias_relu_pool_dropout_backward.
PoolShape pool_block_backward_shape(const View& dx, const View& dbias, const View& dy, const View& index,
                                    const PoolOptions& o, double p);

/// In the index of bias_relu_pool_dropout: the value for windows without gradient.
constexpr std::uint8_t no_gradient = 255;

}  // namespace trireme
