// The layers users compose. Each holds its weights as Tensors (copies share them), made on construction with
// PyTorch's default distribution, each layer that a thread makes from numbers of its own. initialize(model, seed)
// redraws them from a seed and their names (framework/layers/init.h).
#pragma once
#include "framework/layers/inference.h"
#include "framework/layers/layer.h"
#include "framework/ops/ops.h"

namespace trireme {

/// y = x w^T + b. x [N, in] -> [N, out].
struct Linear {
  struct Options {
    bool bias = true;
    Init start = Init::pytorch_default;
  };
  Linear(Index in, Index out, Options = {true, Init::pytorch_default});
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, FileLayout::same, start), v("bias", bias, StateKind::no_decay);
  }
  Tensor weight, bias;  ///< [out, in], [out]
  Init start;
};

/// Options of Conv1d, Conv2d, Conv3d: one number serves every spatial axis.
struct ConvLayerOptions {
  Index stride = 1, pad = 0, dilation = 1, groups = 1;
  bool bias = true;
  Init start = Init::pytorch_default;
};
/// x [N, spatial..., in] -> [N, spatial'..., out]. kernel: one extent per spatial axis.
struct ConvNd {
  ConvNd(Index in, Index out, const Shape& kernel, ConvOptions, bool bias, Init = Init::pytorch_default);
  Tensor operator()(const Tensor& x) const { return apply(x, options.relu); }
  /// With or without a ReLU, whatever the options say; moments: as conv() takes them.
  Tensor apply(const Tensor& x, bool relu, ChannelStats* moments = nullptr) const;
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, FileLayout::filter, start), v("bias", bias, StateKind::no_decay);
  }
  Tensor weight, bias;  ///< [out, kernel..., in / groups], [out]
  Init start;
  ConvOptions options;
};
struct Conv1d : ConvNd {
  Conv1d(Index in, Index out, Index kernel, ConvLayerOptions = {});
};
struct Conv2d : ConvNd {
  Conv2d(Index in, Index out, Index kernel, ConvLayerOptions = {});
};
struct Conv3d : ConvNd {
  Conv3d(Index in, Index out, Index kernel, ConvLayerOptions = {});
};

/// Over the two spatial axes of an image (or all of 1 or 3). stride 0 means the window.
struct PoolLayerOptions {
  Index stride = 0, pad = 0;
};
struct MaxPool {
  explicit MaxPool(Index window, PoolLayerOptions = {});
  Tensor operator()(const Tensor& x) const { return max_pool(x, options); }
  PoolOptions options;
};
struct AvgPool {
  explicit AvgPool(Index window, PoolLayerOptions = {});
  Tensor operator()(const Tensor& x) const { return avg_pool(x, options); }
  PoolOptions options;
};

/// Over all axes but the last. weight = gamma, bias = beta; buffers running_mean, running_var.
struct BatchNorm {
  /// start zero: gamma starts at 0 instead of 1.
  explicit BatchNorm(Index channels, BatchNormOptions = {}, Init = Init::pytorch_default);
  Tensor operator()(const Tensor& x) const { return batch_norm(x, weight, bias, running_mean, running_var, options); }
  /// relu(batch_norm(x) + residual) when options.relu.
  Tensor operator()(const Tensor& x, const Tensor& residual, const ChannelStats& moments = {}) const {
    return batch_norm(x, weight, bias, running_mean, running_var, options, residual, moments);
  }
  void visit(const StateVisitor& v);
  Tensor weight, bias, running_mean, running_var;
  BatchNormOptions options;
  Init start;
};

/// norm(conv(x)), or norm(conv(x), residual). Under an Inference it is one convolution with the norm folded into its
/// filter; in training the convolution may gather the norm's statistics.
Tensor conv_norm(const ConvNd&, const BatchNorm&, const Tensor& x, Tensor residual = {});

/// A skip connection between layers of one Sequential: Stash sets its input aside under a name and hands it on,
/// AddStashed adds it, through the shortcut if there is one, to its input. Unlike a block that holds both ends, the
/// layers between may be cut apart into pipeline stages; the stashed tensor then travels along.
struct Stash {
  std::string name;
  Tensor operator()(const Tensor& x) const;  ///< throws: a Sequential serves it
};
struct AddStashed {
  explicit AddStashed(std::string name, Module shortcut = {}) : name(std::move(name)), shortcut(std::move(shortcut)) {}
  Tensor operator()(const Tensor& x) const;  ///< throws: a Sequential serves it
  void visit(const StateVisitor& v) {
    if (shortcut) v("shortcut", shortcut);
  }
  std::string name;
  Module shortcut;
};

/// Over the last axis.
struct LayerNorm {
  explicit LayerNorm(Index channels, double eps = 1e-5);
  Tensor operator()(const Tensor& x) const { return layer_norm(x, weight, bias, eps); }
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::no_decay), v("bias", bias, StateKind::no_decay); }
  Tensor weight, bias;
  double eps;
};

/// Zeroes with probability p and scales the rest by 1 / (1 - p). The mask is a function of (seed, step,
/// sample id, this layer's name): the same on one rank and on many.
struct Dropout {
  explicit Dropout(double p);
  Tensor operator()(const Tensor& x) const { return dropout(x, p, key); }
  void visit(const StateVisitor& v) { v.random(key); }
  double p;
  std::uint64_t key = 0;
};

}  // namespace trireme
