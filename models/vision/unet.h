// U-Net for segmentation, in two and three dimensions.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// Ronneberger et al. (arXiv 1505.04597; in 3-D Cicek et al., arXiv 1606.06650) with padding and batch norm: x [N, H,
/// W, C], or [N, D, H, W, C] if ModelOptions::input has four extents -> logits [N, same positions, classes]. Spatial
/// extents must be multiples of 16. width: channels of the first level; each of the four further levels doubles them.
/// Names and, in 2-D, shapes are as in "mateuszbuda/brain-segmentation-pytorch" on PyTorch Hub, whose last step is a
/// sigmoid of these logits. Throws Error for an input with another number of axes.
Sequential unet(const ModelOptions& = {.input = {256, 256, 3}, .classes = 1}, Index width = 32);

}  // namespace trireme
