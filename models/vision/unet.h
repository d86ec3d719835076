// U-Net for segmentation, in two and three dimensions.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// Ronneberger et al. (arXiv 1505.04597; in 3-D Cicek et al., arXiv 1606.06650) with padding and batch norm: x [N, H,
/// W, C], or [N, D, H, W, C] where ModelOptions::input has four extents, each a multiple of 16 -> logits of the same
/// positions [N, ..., classes]. width: channels of the first level, doubled at each of four further ones. Names and, in
/// 2-D, shapes are those of "mateuszbuda/brain-segmentation-pytorch" on PyTorch Hub, whose last step is a sigmoid of
/// these logits. Throws Error for an input of other ranks.
Sequential unet(const ModelOptions& = {.input = {256, 256, 3}, .classes = 1}, Index width = 32);

}  // namespace trireme
