// The mixed-scale dense network, for segmentation and denoising of images and volumes.
#pragma once
#include <vector>

#include "framework/ops/mixed_scale.h"
#include "models/registry/models.h"

namespace trireme {

/// The hidden layers of a mixed-scale dense network: op mixed_scale_dense(). x [N, H, W, C] or [N, D, H, W, C] -> the
/// same positions, [..., C + width depth].
struct MixedScaleDense {
  /// axes: 2 or 3 spatial axes. in: channels of the input. width: channels of each layer. dilations: one per layer, in
  /// cells. std: of the normal distribution that filters are drawn from; biases start as 0. Throws Error for other axes
  /// and for numbers below 1.
  MixedScaleDense(int axes, Index in, Index width, std::vector<Index> dilations, double std);
  Tensor operator()(const Tensor& x) const { return mixed_scale_dense(x, weight, bias, dilations); }  ///< as the op
  /// Names "0.weight", "0.bias", "1.weight", ...
  void visit(const StateVisitor& v);
  std::vector<Tensor> weight,    ///< of layer i [width, 3, 3(, 3), in + width i]
      bias;                      ///< [width]
  std::vector<Index> dilations;  ///< cells, of layer i
  Init init;                     ///< of the weights
};

/// What a mixed-scale dense network is made of.
struct MsdOptions {
  Index depth = 100,                                            ///< hidden layers, at least 1
      width = 1;                                                ///< channels of each, at least 1
  std::vector<Index> dilations{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};  ///< of the layers in turn, over and over; cells
};
/// Pelt and Sethian, PNAS 115(2), 2018: x [N, H, W, C], or [N, D, H, W, C] where ModelOptions::input has four extents
/// -> logits of the same positions [N, ..., classes] by a last layer of 1 x 1 (x 1) over the input and all hidden
/// channels. Filters start from a normal distribution with variance 2 / (taps (C + width (depth - 1)) + classes), which
/// are the connections of a channel; biases and the last layer as 0. Parts "dense" (MixedScaleDense) and "final".
/// Throws Error for an input of other ranks, and as MixedScaleDense.
Sequential msd(const ModelOptions& = {.input = {256, 256, 1}, .classes = 2}, const MsdOptions& = {});

}  // namespace trireme
