// Conv1d, Conv2d, Conv3d and their transposed forms: convolutions.
#pragma once
#include "framework/layers/module.h"
#include "framework/layers/per_axis.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Options of Conv1d, Conv2d and Conv3d, with the meaning of torch.nn.Conv2d. Lengths are in pixels: one number for all
/// spatial axes, or one number for each.
struct ConvLayerOptions {
  PerAxis stride = 1;    ///< pixels between neighbouring windows, at least 1
  LayerPadding pad = 0;  ///< zeros on each side of each axis, at least 0, or {before, after}; LayerPadding::same(): the
                         ///< padding that keeps the extent
  PerAxis dilation = 1;  ///< pixels between neighbouring taps of the kernel, at least 1; 1: a dense kernel
  Index groups = 1;      ///< number of groups; must divide `in` and `out`
  bool bias = true;      ///< whether a trained bias [out] is added
  Init init = Init::pytorch_default();  ///< of the weight; the bias takes Init::of_bias
};
/// Convolution (cross-correlation) over 1 to 3 spatial axes: x [N, spatial..., in] -> [N, spatial'..., out] with
/// spatial' = floor((spatial + 2 pad - dilation (kernel - 1) - 1) / stride) + 1. Throws Error for sizes below 1,
/// negative padding and groups that do not divide the channels.
struct ConvNd {
  /// kernel: one extent per spatial axis, in pixels. The options hold one value per axis, and whether a ReLU follows.
  ConvNd(Index in, Index out, const Shape& kernel, ConvOptions, bool bias, Init = Init::pytorch_default());
  /// conv() with the weights and options of this layer.
  Tensor operator()(const Tensor& x) const { return apply(x, options.relu); }
  /// The same with or without a ReLU, whatever options.relu is. moments: as in conv().
  Tensor apply(const Tensor& x, bool relu, ChannelStats* moments = nullptr) const;
  /// Visits "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init, FileLayout::filter);
    v("bias", bias, StateKind::no_decay, init.of_bias(weight.shape()));
  }
  Tensor weight,        ///< [out, kernel..., in / groups]; f32 on the CPU until convert() or place()
      bias;             ///< [out]; undefined if the layer has no bias
  Init init;            ///< of weight
  ConvOptions options;  ///< may be changed between calls
};
/// torch.nn.Conv1d: x [N, L, in] -> [N, L', out].
struct Conv1d : ConvNd {
  /// kernel: in pixels, at least 1.
  Conv1d(Index in, Index out, PerAxis kernel, ConvLayerOptions = {});
};
/// torch.nn.Conv2d: x [N, H, W, in] -> [N, H', W', out].
struct Conv2d : ConvNd {
  /// kernel: in pixels, at least 1: one number, or {height, width}.
  Conv2d(Index in, Index out, PerAxis kernel, ConvLayerOptions = {});
};
/// torch.nn.Conv3d: x [N, D, H, W, in] -> [N, D', H', W', out].
struct Conv3d : ConvNd {
  /// kernel: in pixels, at least 1: one number, or {depth, height, width}.
  Conv3d(Index in, Index out, PerAxis kernel, ConvLayerOptions = {});
};
/// Options of ConvTranspose1d to ConvTranspose3d, with the meaning of torch.nn.ConvTranspose2d.
struct ConvTransposeLayerOptions {
  PerAxis stride = 1;                   ///< pixels of the output between neighbouring windows, at least 1
  PerAxis pad = 0;                      ///< pixels cut off on each side of each axis
  PerAxis output_pad = 0;               ///< pixels added at the end of each axis; less than the stride or the dilation
  PerAxis dilation = 1;                 ///< pixels between neighbouring taps of the kernel, at least 1
  Index groups = 1;                     ///< number of groups; must divide `in` and `out`
  bool bias = true;                     ///< whether a trained bias [out] is added
  Init init = Init::pytorch_default();  ///< of the weight; the bias takes Init::of_bias
};
/// Transposed convolution over 1 to 3 spatial axes (conv_transpose()): x [N, spatial..., in] -> [N, spatial'..., out]
/// with spatial' = (spatial - 1) stride - 2 pad + dilation (kernel - 1) + 1 + output_pad. Errors as in ConvNd.
struct ConvTransposeNd {
  /// axes: number of spatial axes, 1 to 3. kernel: in pixels, at least 1.
  ConvTransposeNd(int axes, Index in, Index out, PerAxis kernel, const ConvTransposeLayerOptions&);
  /// conv_transpose() with the weights and options of this layer.
  Tensor operator()(const Tensor& x) const { return conv_transpose(x, weight, bias, options, output_pad); }
  /// Visits "weight" and "bias".
  void visit(const StateVisitor& v) {
    v("weight", weight, StateKind::weight, init, FileLayout::filter);
    v("bias", bias, StateKind::no_decay, init.of_bias(weight.shape()));
  }
  Tensor weight,        ///< [in, kernel..., out / groups]
      bias;             ///< [out]; undefined if the layer has no bias
  Init init;            ///< of weight
  ConvOptions options;  ///< of the convolution that this layer transposes
  Extents output_pad;   ///< per spatial axis, in pixels
};
/// torch.nn.ConvTranspose1d: x [N, L, in] -> [N, L', out].
struct ConvTranspose1d : ConvTransposeNd {
  /// kernel: in pixels, at least 1.
  ConvTranspose1d(Index in, Index out, PerAxis kernel, const ConvTransposeLayerOptions& o = {})
      : ConvTransposeNd(1, in, out, kernel, o) {}
};
/// torch.nn.ConvTranspose2d: x [N, H, W, in] -> [N, H', W', out].
struct ConvTranspose2d : ConvTransposeNd {
  /// kernel: in pixels, at least 1.
  ConvTranspose2d(Index in, Index out, PerAxis kernel, const ConvTransposeLayerOptions& o = {})
      : ConvTransposeNd(2, in, out, kernel, o) {}
};
/// torch.nn.ConvTranspose3d: x [N, D, H, W, in] -> [N, D', H', W', out].
struct ConvTranspose3d : ConvTransposeNd {
  /// kernel: in pixels, at least 1.
  ConvTranspose3d(Index in, Index out, PerAxis kernel, const ConvTransposeLayerOptions& o = {})
      : ConvTransposeNd(3, in, out, kernel, o) {}
};
/// The convolution that a module holds, of any number of axes; null if the module holds another layer.
inline ConvNd* as_conv(const Module& m) {
  if (auto* c = m.as<Conv2d>()) return c;
  if (auto* c = m.as<Conv1d>()) return c;
  if (auto* c = m.as<Conv3d>()) return c;
  return m.as<ConvNd>();
}

}  // namespace trireme
