// Conv1d, Conv2d, Conv3d: convolutions.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Options of Conv1d, Conv2d, Conv3d, as torch.nn.Conv2d's: one number, in pixels, serves every spatial axis.
struct ConvLayerOptions {
  Index stride = 1, pad = 0, dilation = 1;
  Index groups = 1;  ///< divides in and out
  bool bias = true;
  Init init = Init::pytorch_default();  ///< of the weight; the bias is drawn as Init::of_bias says
};
/// Cross-correlation: x [N, spatial..., in] -> [N, spatial'..., out] with spatial' = floor((spatial + 2 pad -
/// dilation (kernel - 1) - 1) / stride) + 1. kernel: one extent per spatial axis. Throws Error for sizes below 1,
/// negative padding and groups that do not divide the channels.
struct ConvNd {
  ConvNd(Index in, Index out, const Shape& kernel, ConvOptions, bool bias, Init = Init::pytorch_default());
  Tensor operator()(const Tensor& x) const { return apply(x, options.relu); }
  /// With or without a ReLU, whatever the options say; moments: as conv() takes them.
  Tensor apply(const Tensor& x, bool relu, ChannelStats* moments = nullptr) const;
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init, FileLayout::filter);
    v("bias", bias, StateKind::no_decay, init.of_bias(weight.shape()));
  }
  Tensor weight, bias;  ///< [out, kernel..., in / groups], [out]
  Init init;
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

}  // namespace trireme
