// The op of mixed-scale dense networks: a whole stack of layers in one block of features.
#pragma once
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

}  // namespace trireme
