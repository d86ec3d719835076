// BatchNorm, LayerNorm, RMSNorm, GroupNorm and InstanceNorm.
#pragma once
#include "framework/layers/conv.h"
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Ioffe and Szegedy (arXiv 1502.03167), as torch.nn.BatchNorm2d: x [..., C] -> the same shape, each channel normalised
/// over all axes but the last. In training by the batch's mean and biased variance, towards which the running ones move
/// by options.momentum; in evaluation by the running ones. Throws Error for channels below 1.
struct BatchNorm {
  /// weight is drawn from weight_init; bias 0, running_mean 0, running_var 1. All f32 on the CPU.
  explicit BatchNorm(Index channels, BatchNormOptions = {}, Init weight_init = Init::ones());
  /// ops batch_norm(), with ReLU when options.relu.
  Tensor operator()(const Tensor& x) const { return batch_norm(x, weight, bias, running_mean, running_var, options); }
  /// relu(batch_norm(x) + residual) when options.relu.
  Tensor operator()(const Tensor& x, const Tensor& residual, const ChannelStats& moments = {}) const {
    return batch_norm(x, weight, bias, running_mean, running_var, options, residual, moments);
  }
  /// Names "weight", "bias", and the buffers "running_mean" and "running_var".
  void visit(const StateVisitor& v);
  Tensor weight,             ///< gamma [C]
      bias,                  ///< beta [C]
      running_mean,          ///< [C]; a buffer
      running_var;           ///< [C], unbiased; a buffer
  BatchNormOptions options;  ///< may be changed between calls
  Init init;                 ///< of weight
};

/// norm(conv(x)), or norm(conv(x), residual). Under an Inference it is one convolution with the norm folded into its
/// filter; in training the convolution may gather the norm's statistics.
Tensor conv_norm(const ConvNd&, const BatchNorm&, const Tensor& x, Tensor residual = {});

/// Ba et al. (arXiv 1607.06450), as torch.nn.LayerNorm: x -> the same shape, normalised over the last axes, of these
/// extents, by their mean and biased variance. Throws Error for extents below 1.
struct LayerNorm {
  /// Over the last axis. weight 1, bias 0, both f32 on the CPU; with_bias: whether there is a bias.
  explicit LayerNorm(Index channels, double eps = 1e-5, bool with_bias = true)
      : LayerNorm(Shape{channels}, eps, with_bias) {}
  explicit LayerNorm(const Shape& last_axes, double eps = 1e-5, bool with_bias = true);
  /// ops layer_norm_over()
  Tensor operator()(const Tensor& x) const { return layer_norm_over(x, weight.shape(), weight, bias, eps); }
  /// Names "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::no_decay, Init::ones()), v("bias", bias, StateKind::no_decay, Init::zeros());
  }
  Tensor weight,  ///< gamma, of the last axes' extents
      bias;       ///< beta, likewise; undefined without one
  double eps;     ///< added to the variance
};

/// torch.nn.RMSNorm(channels): ops rms_norm() over the last axis. Throws Error for channels below 1.
struct RMSNorm {
  /// weight 1, f32 on the CPU.
  explicit RMSNorm(Index channels, double eps = 1e-5);
  Tensor operator()(const Tensor& x) const { return rms_norm(x, weight, eps); }
  /// Names "weight".
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::no_decay, Init::ones()); }
  Tensor weight;  ///< gamma [C]
  double eps;     ///< added to the mean square
};

/// torch.nn.GroupNorm: ops group_norm() of x [N, ..., C]. Throws Error unless groups divide the channels.
struct GroupNorm {
  /// With affine, weight 1 and bias 0, both f32 on the CPU; else none.
  GroupNorm(Index groups, Index channels, double eps = 1e-5, bool affine = true);
  Tensor operator()(const Tensor& x) const;
  /// Names "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::no_decay, Init::ones()), v("bias", bias, StateKind::no_decay, Init::zeros());
  }
  Tensor weight,           ///< gamma [C]
      bias;                ///< beta [C]
  Index groups, channels;  ///< channels of x
  double eps;              ///< added to the variance
};
/// torch.nn.InstanceNorm1d to 3d, without running statistics: a GroupNorm of one channel per group.
struct InstanceNorm : GroupNorm {
  explicit InstanceNorm(Index channels, double eps = 1e-5, bool affine = false)
      : GroupNorm(channels, channels, eps, affine) {}
};

}  // namespace trireme
