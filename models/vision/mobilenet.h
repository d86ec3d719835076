// MobileNetV2 with torchvision's shapes and names.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// Sandler et al. (arXiv 1801.04381), width 1: x [N, H, W, C] -> logits [N, classes]; 3,504,872 parameters with C = 3
/// and 1000 classes. Input channels should have mean 0 and standard deviation 1, as in torchvision. Throws Error for an
/// input that is not [H, W, C].
Sequential mobilenet_v2(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});

}  // namespace trireme
