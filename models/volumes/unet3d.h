// The 3-D U-Net by its name on the command line.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// unet() (models/vision/unet.h) of a volume: Cicek et al. (arXiv 1606.06650), with padding and batch norm: x [N, D, H,
/// W, C], extents that are multiples of 16 -> logits of the same positions [N, D, H, W, classes]. width: channels of
/// the first level. Throws Error for an input of other ranks.
Sequential unet3d(const ModelOptions& = {.input = {64, 64, 64, 1}, .classes = 2}, Index width = 32);

}  // namespace trireme
