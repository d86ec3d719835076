// The 3-D U-Net, registered as "unet3d".
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// unet() (models/vision/unet.h) for volumes: Cicek et al. (arXiv 1606.06650), with padding and batch norm. x [N, D, H,
/// W, C] with extents that are multiples of 16 -> logits [N, D, H, W, classes]. width: channels of the first level.
/// Throws Error for an input with another number of axes.
Sequential unet3d(const ModelOptions& = {.input = {64, 64, 64, 1}, .classes = 2}, Index width = 32);

}  // namespace trireme
