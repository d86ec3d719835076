// The mixed-scale dense network, for segmentation and denoising of images and volumes.
#pragma once
#include <vector>

#include "framework/ops/mixed_scale.h"
#include "models/registry/models.h"

namespace trireme {

/// The hidden layers of a mixed-scale dense network: op mixed_scale_dense(). x [N, H, W, C] or [N, D, H, W, C] -> [same
/// positions, C + width * depth].
struct MixedScaleDense {
  /// axes: number of spatial axes, 2 or 3. in: input channels. width: channels per layer. dilations: one per layer, in
  /// pixels. std: standard deviation of the initial normal distribution of filters; biases start at 0. Throws Error for
  /// other axes and for numbers below 1.
  MixedScaleDense(int axes, Index in, Index width, std::vector<Index> dilations, double std);
  Tensor operator()(const Tensor& x) const {
    return mixed_scale_dense(x, weight, bias, dilations);
  }  ///< applies the op
  /// Visits the tensors "0.weight", "0.bias", "1.weight", ...
  void visit(const StateVisitor& v);
  std::vector<Tensor> weight,    ///< of layer i: [width, 3, 3(, 3), in + width * i]
      bias;                      ///< of layer i: [width]
  std::vector<Index> dilations;  ///< of layer i, in pixels
  Init init;                     ///< initialisation of the weights
};

/// Options of msd().
struct MsdOptions {
  Index depth = 100,                                            ///< number of hidden layers, at least 1
      width = 1;                                                ///< channels per hidden layer, at least 1
  std::vector<Index> dilations{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};  ///< dilations in pixels, repeated over the layers
};
/// Pelt and Sethian, PNAS 115(2), 2018: x [N, H, W, C], or [N, D, H, W, C] if ModelOptions::input has four extents ->
/// logits [N, same positions, classes]. The last layer is 1 x 1 (x 1) over the input and all hidden channels. Filters
/// start from a normal distribution with variance 2 / (taps (C + width (depth - 1)) + classes), where the denominator
/// is a channel's number of connections. Biases and the last layer start at 0. Parts "dense" (MixedScaleDense) and
/// "final". Throws Error for an input with another number of axes, and as MixedScaleDense.
Sequential msd(const ModelOptions& = {.input = {256, 256, 1}, .classes = 2}, const MsdOptions& = {});

}  // namespace trireme
