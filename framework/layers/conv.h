// Conv1d, Conv2d, Conv3d: convolutions.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Options of Conv1d, Conv2d, Conv3d, as torch.nn.Conv2d's: one number, in pixels, serves every spatial axis.
struct ConvLayerOptions {
  Index stride = 1,  ///< pixels between neighbouring windows, at least 1
      pad = 0,       ///< zeros on each side of each axis, at least 0
      dilation = 1;  ///< pixels between neighbouring taps of the kernel, at least 1; 1: a dense kernel
  Index groups = 1;  ///< divides in and out
  bool bias = true;  ///< whether a bias [out] is added, and trained
  Init init = Init::pytorch_default();  ///< of the weight; the bias is drawn as Init::of_bias says
};
/// Cross-correlation: x [N, spatial..., in] -> [N, spatial'..., out] with spatial' = floor((spatial + 2 pad -
/// dilation (kernel - 1) - 1) / stride) + 1. kernel: one extent per spatial axis. Throws Error for sizes below 1,
/// negative padding and groups that do not divide the channels.
struct ConvNd {
  /// Of 1 to 3 spatial axes; ConvOptions: an extent per axis, and whether a ReLU follows.
  ConvNd(Index in, Index out, const Shape& kernel, ConvOptions, bool bias, Init = Init::pytorch_default());
  /// ops conv() with these weights and options.
  Tensor operator()(const Tensor& x) const { return apply(x, options.relu); }
  /// With or without a ReLU, whatever the options say; moments: as conv() takes them.
  Tensor apply(const Tensor& x, bool relu, ChannelStats* moments = nullptr) const;
  /// Names "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init, FileLayout::filter);
    v("bias", bias, StateKind::no_decay, init.of_bias(weight.shape()));
  }
  Tensor weight,        ///< [out, kernel..., in / groups]; f32 on the CPU until convert() or place()
      bias;             ///< [out]; undefined without one
  Init init;            ///< of weight
  ConvOptions options;  ///< may be changed between calls
};
/// torch.nn.Conv1d: x [N, L, in] -> [N, L', out].
struct Conv1d : ConvNd {
  /// kernel: in pixels, at least 1.
  Conv1d(Index in, Index out, Index kernel, ConvLayerOptions = {});
};
/// torch.nn.Conv2d: x [N, H, W, in] -> [N, H', W', out].
struct Conv2d : ConvNd {
  /// kernel: of both axes, in pixels, at least 1.
  Conv2d(Index in, Index out, Index kernel, ConvLayerOptions = {});
};
/// torch.nn.Conv3d: x [N, D, H, W, in] -> [N, D', H', W', out].
struct Conv3d : ConvNd {
  /// kernel: of all three axes, in pixels, at least 1.
  Conv3d(Index in, Index out, Index kernel, ConvLayerOptions = {});
};
/// The convolution that a module is, of whatever axes; null: it is none.
inline ConvNd* as_conv(const Module& m) {
  if (auto* c = m.as<Conv2d>()) return c;
  if (auto* c = m.as<Conv1d>()) return c;
  if (auto* c = m.as<Conv3d>()) return c;
  return m.as<ConvNd>();
}

}  // namespace trireme
