// The op of mixed-scale dense networks: a stack of layers in one block of features.
#pragma once
#include <memory>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/contracts/mixed_scale.h"

namespace trireme {

/// The layers of a mixed-scale dense network (Pelt and Sethian, PNAS 115(2), 2018). Each layer is the ReLU of a dilated
/// 3 x 3 (x 3) convolution of all earlier channels, with zero padding that keeps the extents. x [N, spatial..., C] with
/// 2 or 3 spatial axes; w[i] [outputs_i, 3, 3(, 3), channels before layer i]; bias[i] [outputs_i]; dilations[i] >= 1,
/// in cells -> [N, spatial..., C + outputs of all layers], x first. Forward needs memory for this block only, and
/// backward for one gradient of its size (f32 for bf16 and f16): it grows linearly with the depth, not quadratically.
/// Weights may be f32 with bf16 and f16 data. Throws Error for operands that do not fit.
Tensor mixed_scale_dense(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                         const std::vector<Index>& dilations);

/// A rank's part of an image that is divided over ranks, with space around it for its neighbours' cells.
class MixedScaleHalo {
 public:
  virtual ~MixedScaleHalo() = default;
  Shape room,  ///< [N, spatial..., C]: extents of the block with its halo, for any C; it ends at the image's border or
               ///< after a halo
      begin;   ///< position of the rank's own cells in the block, one number per axis
  /// Copies the neighbours' cells of channels [first, first + count) into the block, up to `reach` cells around this
  /// rank's own cells. Collective.
  virtual void exchange(const Tensor& block, Index first, Index count, Index reach) const = 0;
};
/// As above, for x as this rank's part: the layers exchange a halo of each new channel, as wide as the largest dilation
/// that reads it, and backward exchanges a halo of its gradient. Results are rounded as for the whole image, except for
/// the weights' gradients, which are this rank's share of the sum.
Tensor mixed_scale_dense(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                         const std::vector<Index>& dilations, std::shared_ptr<const MixedScaleHalo>);

}  // namespace trireme
