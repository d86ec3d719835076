// BatchNorm, LayerNorm, RMSNorm, GroupNorm and InstanceNorm.
#pragma once
#include "framework/layers/conv.h"
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Batch normalization (Ioffe and Szegedy, arXiv 1502.03167), as torch.nn.BatchNorm2d. x [..., C] -> the same shape:
/// each channel is normalized over all axes but the last. Training uses the mean and biased variance of the batch, and
/// moves the running statistics towards them by options.momentum. Evaluation uses the running statistics. Throws Error
/// for channels below 1.
struct BatchNorm {
  /// weight is drawn from weight_init; bias and running_mean are 0, running_var is 1. All are f32 on the CPU.
  explicit BatchNorm(Index channels, BatchNormOptions = {}, Init weight_init = Init::ones());
  /// batch_norm(), followed by ReLU if options.relu.
  Tensor operator()(const Tensor& x) const { return batch_norm(x, weight, bias, running_mean, running_var, options); }
  /// batch_norm(x) + residual, followed by ReLU if options.relu. moments: as in batch_norm().
  Tensor operator()(const Tensor& x, const Tensor& residual, const ChannelStats& moments = {}) const {
    return batch_norm(x, weight, bias, running_mean, running_var, options, residual, moments);
  }
  /// Visits "weight", "bias" and the buffers "running_mean" and "running_var".
  void visit(const StateVisitor& v);
  Tensor weight,             ///< gamma [C]
      bias,                  ///< beta [C]
      running_mean,          ///< [C]; a buffer
      running_var;           ///< [C], unbiased variance; a buffer
  BatchNormOptions options;  ///< may be changed between calls
  Init init;                 ///< of weight
};

/// norm(conv(x)), or norm(conv(x), residual). While an Inference lives, this is one convolution with the norm folded
/// into the filter. In training the convolution may compute the statistics of the norm on the way.
Tensor conv_norm(const ConvNd&, const BatchNorm&, const Tensor& x, Tensor residual = {});

/// Layer normalization (Ba et al., arXiv 1607.06450), as torch.nn.LayerNorm. x -> the same shape, normalized over the
/// last axes by their mean and biased variance. Throws Error for extents below 1.
struct LayerNorm {
  /// Normalizes over the last axis. weight is 1, bias is 0, both f32 on the CPU. with_bias: whether there is a bias.
  explicit LayerNorm(Index channels, double eps = 1e-5, bool with_bias = true)
      : LayerNorm(Shape{channels}, eps, with_bias) {}
  /// Normalizes over the last axes, which must have these extents.
  explicit LayerNorm(const Shape& last_axes, double eps = 1e-5, bool with_bias = true);
  /// layer_norm_over() with the weights of this layer.
  Tensor operator()(const Tensor& x) const { return layer_norm_over(x, weight.shape(), weight, bias, eps); }
  /// Visits "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::no_decay, Init::ones());
    v("bias", bias, StateKind::no_decay, Init::zeros());
  }
  Tensor weight,  ///< gamma, with the extents of the last axes
      bias;       ///< beta, of the same shape; undefined if the layer has no bias
  double eps;     ///< added to the variance
};

/// Root mean square normalization (arXiv 1910.07467), as torch.nn.RMSNorm: rms_norm() over the last axis. Throws Error
/// for channels below 1.
struct RMSNorm {
  /// weight is 1, f32 on the CPU.
  explicit RMSNorm(Index channels, double eps = 1e-5);
  /// rms_norm() with the weight of this layer.
  Tensor operator()(const Tensor& x) const { return rms_norm(x, weight, eps); }
  /// Visits "weight".
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::no_decay, Init::ones()); }
  Tensor weight;  ///< gamma [C]
  double eps;     ///< added to the mean square
};

/// Group normalization (arXiv 1803.08494), as torch.nn.GroupNorm: group_norm() of x [N, ..., C]. Throws Error unless
/// groups divide the channels.
struct GroupNorm {
  /// affine: whether there are a weight (1) and a bias (0), both f32 on the CPU.
  GroupNorm(Index groups, Index channels, double eps = 1e-5, bool affine = true);
  /// group_norm() with the weights of this layer.
  Tensor operator()(const Tensor& x) const;
  /// Visits "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::no_decay, Init::ones());
    v("bias", bias, StateKind::no_decay, Init::zeros());
  }
  Tensor weight,  ///< gamma [C]
      bias;       ///< beta [C]
  Index groups,   ///< number of groups that the channels are divided into
      channels;   ///< channels of x
  double eps;     ///< added to the variance
};
/// Instance normalization (arXiv 1607.08022), as torch.nn.InstanceNorm1d to InstanceNorm3d without running statistics:
/// a GroupNorm with one channel per group.
struct InstanceNorm : GroupNorm {
  /// affine: whether there are a weight (1) and a bias (0).
  explicit InstanceNorm(Index channels, double eps = 1e-5, bool affine = false)
      : GroupNorm(channels, channels, eps, affine) {}
};

}  // namespace trireme
