// Pooling and resampling layers: MaxPool, AvgPool, AdaptiveAvgPool, AdaptiveMaxPool and Upsample. Each calls the op of
// its name in framework/ops.
#pragma once
#include "framework/layers/module.h"
#include "framework/layers/per_axis.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Options of MaxPool and AvgPool. Lengths are in pixels: one number for all spatial axes, or one number for each.
struct PoolLayerOptions {
  PerAxis stride = 0;      ///< pixels between neighbouring windows; 0: the size of the window
  PerAxis pad = 0;         ///< pixels on each side, at most half the window
  PerAxis dilation = 1;    ///< MaxPool only: pixels between the taps of a window, at least 1
  bool ceil_mode = false;  ///< whether the last window may end outside of the image, as in PyTorch
};
/// torch.nn.MaxPool1d to MaxPool3d: x [N, spatial..., C] with 1 to 3 spatial axes -> [N, spatial'..., C] with spatial'
/// = floor((spatial + 2 pad - dilation (window - 1) - 1) / stride) + 1. Padding never is the maximum. Throws Error for
/// a window below 1 and for options out of range.
struct MaxPool {
  /// window: extents in pixels, at least 1.
  explicit MaxPool(PerAxis window, const PoolLayerOptions& = {});
  Tensor operator()(const Tensor& x) const { return max_pool(x, options); }  ///< max_pool()
  PoolOptions options;                                                       ///< per axis; may be changed between calls
};
/// torch.nn.AvgPool1d to AvgPool3d. Shapes and errors as in MaxPool. Padding counts as zeros, and in the divisor,
/// unless options.count_padding is false.
struct AvgPool {
  /// window: extents in pixels, at least 1.
  explicit AvgPool(PerAxis window, const PoolLayerOptions& = {});
  Tensor operator()(const Tensor& x) const { return avg_pool(x, options); }  ///< avg_pool()
  PoolOptions options;                                                       ///< per axis; may be changed between calls
};
/// torch.nn.AdaptiveAvgPool1d to AdaptiveAvgPool3d: x [N, spatial..., C] -> [N, size..., C].
struct AdaptiveAvgPool {
  /// size: one extent per spatial axis, in pixels, at least 1.
  explicit AdaptiveAvgPool(const Shape& size) : size(size) {}
  Tensor operator()(const Tensor& x) const { return adaptive_avg_pool(x, size); }  ///< adaptive_avg_pool()
  Shape size;                                                                      ///< of the result
};
/// torch.nn.AdaptiveMaxPool1d to AdaptiveMaxPool3d: x [N, spatial..., C] -> [N, size..., C].
struct AdaptiveMaxPool {
  /// size: one extent per spatial axis, in pixels, at least 1.
  explicit AdaptiveMaxPool(const Shape& size) : size(size) {}
  Tensor operator()(const Tensor& x) const { return adaptive_max_pool(x, size); }  ///< adaptive_max_pool()
  Shape size;                                                                      ///< of the result
};
/// torch.nn.Upsample: resizes the spatial axes of x [N, spatial..., C] by interpolate().
struct Upsample {
  /// options: size or scale of the result, and the mode.
  explicit Upsample(const InterpolateOptions& options) : options(options) {}
  Tensor operator()(const Tensor& x) const { return interpolate(x, options); }  ///< interpolate()
  InterpolateOptions options;                                                   ///< size or scale, and the mode
};

}  // namespace trireme
