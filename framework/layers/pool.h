// MaxPool and AvgPool: the layers of the ops max_pool() and avg_pool().
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// One number, in pixels, for every spatial axis.
struct PoolLayerOptions {
  Index stride = 0;  ///< 0: the window, so that windows tile the image
  Index pad = 0;     ///< on each side, at most half the window
};
/// x [N, spatial..., C] of 1 to 3 spatial axes -> [N, spatial'..., C], spatial' = floor((spatial + 2 pad - window) /
/// stride) + 1. Padding is smaller than anything. Throws Error for a window below 1 and options out of range.
struct MaxPool {
  /// window: extent along every spatial axis, in pixels, at least 1.
  explicit MaxPool(Index window, PoolLayerOptions = {});
  Tensor operator()(const Tensor& x) const { return max_pool(x, options); }  ///< ops max_pool()
  PoolOptions options;                                                       ///< per axis; may be changed between calls
};
/// Shapes and errors are MaxPool's. Padding counts as zeros, and in the number divided by, as in torch.nn.AvgPool2d.
struct AvgPool {
  /// window: extent along every spatial axis, in pixels, at least 1.
  explicit AvgPool(Index window, PoolLayerOptions = {});
  Tensor operator()(const Tensor& x) const { return avg_pool(x, options); }  ///< ops avg_pool()
  PoolOptions options;                                                       ///< per axis; may be changed between calls
};

}  // namespace trireme
