// Conv1d, Conv2d, Conv3d and their transposed forms: convolutions.
#pragma once
#include "framework/layers/module.h"
#include "framework/layers/per_axis.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Options of Conv1d, Conv2d, Conv3d, as torch.nn.Conv2d's, in pixels: one number for every spatial axis, or one for
/// each.
struct ConvLayerOptions {
  PerAxis stride = 1;    ///< pixels between neighbouring windows, at least 1
  LayerPadding pad = 0;  ///< zeros on each side of each axis, at least 0, or {before, behind}; LayerPadding::same(): as
                         ///< many as keep it
  PerAxis dilation = 1;  ///< pixels between neighbouring taps of the kernel, at least 1; 1: a dense kernel
  Index groups = 1;      ///< divides in and out
  bool bias = true;      ///< whether a bias [out] is added, and trained
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
  /// kernel: in pixels, at least 1; so for the others.
  Conv1d(Index in, Index out, PerAxis kernel, ConvLayerOptions = {});
};
/// torch.nn.Conv2d: x [N, H, W, in] -> [N, H', W', out].
struct Conv2d : ConvNd {
  Conv2d(Index in, Index out, PerAxis kernel, ConvLayerOptions = {});
};
/// torch.nn.Conv3d: x [N, D, H, W, in] -> [N, D', H', W', out].
struct Conv3d : ConvNd {
  Conv3d(Index in, Index out, PerAxis kernel, ConvLayerOptions = {});
};
/// Options of ConvTranspose1d to 3d, as torch.nn.ConvTranspose2d's.
struct ConvTransposeLayerOptions {
  PerAxis stride = 1;                   ///< pixels of the output between neighbouring windows, at least 1
  PerAxis pad = 0;                      ///< pixels cut off on each side of each axis
  PerAxis output_pad = 0;               ///< pixels added behind each axis, less than the stride or the dilation
  PerAxis dilation = 1;                 ///< pixels between neighbouring taps of the kernel, at least 1
  Index groups = 1;                     ///< divides in and out
  bool bias = true;                     ///< whether a bias [out] is added, and trained
  Init init = Init::pytorch_default();  ///< of the weight; the bias is drawn as Init::of_bias says
};
/// ops conv_transpose(): x [N, spatial..., in] -> [N, spatial'..., out] with spatial' = (spatial - 1) stride - 2 pad +
/// dilation (kernel - 1) + 1 + output_pad. Throws Error as ConvNd.
struct ConvTransposeNd {
  /// Of 1 to 3 spatial axes.
  ConvTransposeNd(int axes, Index in, Index out, PerAxis kernel, const ConvTransposeLayerOptions&);
  Tensor operator()(const Tensor& x) const { return conv_transpose(x, weight, bias, options, output_pad); }
  /// Names "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init, FileLayout::filter);
    v("bias", bias, StateKind::no_decay, init.of_bias(weight.shape()));
  }
  Tensor weight,        ///< [in, kernel..., out / groups]
      bias;             ///< [out]; undefined without one
  Init init;            ///< of weight
  ConvOptions options;  ///< of the convolution that this transposes
  Extents output_pad;
};
/// torch.nn.ConvTranspose1d: x [N, L, in] -> [N, L', out].
struct ConvTranspose1d : ConvTransposeNd {
  ConvTranspose1d(Index in, Index out, PerAxis kernel, const ConvTransposeLayerOptions& o = {})
      : ConvTransposeNd(1, in, out, kernel, o) {}
};
/// torch.nn.ConvTranspose2d: x [N, H, W, in] -> [N, H', W', out].
struct ConvTranspose2d : ConvTransposeNd {
  ConvTranspose2d(Index in, Index out, PerAxis kernel, const ConvTransposeLayerOptions& o = {})
      : ConvTransposeNd(2, in, out, kernel, o) {}
};
/// torch.nn.ConvTranspose3d: x [N, D, H, W, in] -> [N, D', H', W', out].
struct ConvTranspose3d : ConvTransposeNd {
  ConvTranspose3d(Index in, Index out, PerAxis kernel, const ConvTransposeLayerOptions& o = {})
      : ConvTransposeNd(3, in, out, kernel, o) {}
};
/// The convolution that a module is, of whatever axes; null: it is none.
inline ConvNd* as_conv(const Module& m) {
  if (auto* c = m.as<Conv2d>()) return c;
  if (auto* c = m.as<Conv1d>()) return c;
  if (auto* c = m.as<Conv3d>()) return c;
  return m.as<ConvNd>();
}

}  // namespace trireme
