// The op of mixed-scale dense networks: a whole stack of layers in one block of features.
#pragma once
#include <memory>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/contracts/mixed_scale.h"

namespace trireme {

/// The layers of a mixed-scale dense network (Pelt and Sethian, PNAS 115(2), 2018): each is the ReLU of a dilated
/// 3 x 3 (x 3) convolution, with as many zeros around as keep the extents, of all channels before its own. x [N,
/// spatial..., C], 2 or 3 spatial axes; w[i] [outputs_i, 3, 3(, 3), channels before it], bias[i] [outputs_i];
/// dilations[i] >= 1, cells -> [N, spatial..., C + outputs of all layers], x first. Its memory, and that of its
/// backward, is that block (and the gradient's, in f32 beside bf16 and f16): it grows with the depth, not with its
/// square. Tensors of f32 may stand beside bf16 and f16 data. Throws Error for operands that do not fit.
Tensor mixed_scale_dense(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                         const std::vector<Index>& dilations);

/// A rank's part of an image that several hold together, with room around it for its neighbours' cells.
class MixedScaleHalo {
 public:
  virtual ~MixedScaleHalo() = default;
  Shape room,  ///< [N, spatial..., C]: extents of the block, whatever C; it ends where the image does, or holds a halo
      begin;   ///< where the rank's own cells begin in it, one number per axis
  /// Brings the others' cells of channels [first, first + count) into the block, up to `reach` cells around this rank's
  /// own. Collective.
  virtual void exchange(const Tensor& block, Index first, Index count, Index reach) const = 0;
};
/// The same of x, this rank's part: the layers exchange a halo of each new channel, as wide as the largest dilation
/// that reads it, and backward one of its gradient. Rounds as the whole does, but in the sums of the weights'
/// gradients, which are this rank's share.
Tensor mixed_scale_dense(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                         const std::vector<Index>& dilations, std::shared_ptr<const MixedScaleHalo>);

}  // namespace trireme
