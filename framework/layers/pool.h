// Pooling and resampling: the layers of the ops max_pool(), avg_pool(), adaptive_avg_pool(), interpolate(), ...
#pragma once
#include "framework/layers/module.h"
#include "framework/layers/per_axis.h"
#include "framework/ops/ops.h"

namespace trireme {

/// In pixels, one number for every spatial axis, or one for each.
struct PoolLayerOptions {
  PerAxis stride = 0;      ///< 0: the window, so that windows tile the image
  PerAxis pad = 0;         ///< on each side, at most half the window
  PerAxis dilation = 1;    ///< MaxPool only: pixels between a window's, at least 1
  bool ceil_mode = false;  ///< the last window may end outside, as PyTorch's ceil_mode
};
/// x [N, spatial..., C] of 1 to 3 spatial axes -> [N, spatial'..., C], spatial' = floor((spatial + 2 pad - dilation
/// (window - 1) - 1) / stride) + 1. Padding is smaller than anything. Throws Error for a window below 1 and options out
/// of range.
struct MaxPool {
  /// window: extents in pixels, at least 1.
  explicit MaxPool(PerAxis window, const PoolLayerOptions& = {});
  Tensor operator()(const Tensor& x) const { return max_pool(x, options); }  ///< ops max_pool()
  PoolOptions options;                                                       ///< per axis; may be changed between calls
};
/// Shapes and errors are MaxPool's. Padding counts as zeros, and in the number divided by, as in torch.nn.AvgPool2d,
/// unless options.count_padding is cleared.
struct AvgPool {
  /// window: extents in pixels, at least 1.
  explicit AvgPool(PerAxis window, const PoolLayerOptions& = {});
  Tensor operator()(const Tensor& x) const { return avg_pool(x, options); }  ///< ops avg_pool()
  PoolOptions options;                                                       ///< per axis; may be changed between calls
};
/// torch.nn.AdaptiveAvgPool1d to 3d: ops adaptive_avg_pool(), x [N, spatial..., C] -> [N, size..., C].
struct AdaptiveAvgPool {
  explicit AdaptiveAvgPool(const Shape& size) : size(size) {}
  Tensor operator()(const Tensor& x) const { return adaptive_avg_pool(x, size); }
  Shape size;
};
/// torch.nn.AdaptiveMaxPool1d to 3d: ops adaptive_max_pool().
struct AdaptiveMaxPool {
  explicit AdaptiveMaxPool(const Shape& size) : size(size) {}
  Tensor operator()(const Tensor& x) const { return adaptive_max_pool(x, size); }
  Shape size;
};
/// torch.nn.Upsample: ops interpolate().
struct Upsample {
  explicit Upsample(const InterpolateOptions& options) : options(options) {}
  Tensor operator()(const Tensor& x) const { return interpolate(x, options); }
  InterpolateOptions options;
};

}  // namespace trireme
