// VGG-16 and AlexNet with torchvision's shapes and names. Most parameters are in fully connected layers, so studies of
// communication use these models.
#pragma once
#include "models/registry/models.h"

namespace trireme {

// Input channels should have mean 0 and standard deviation 1, as in torchvision. The output is logits, not
// probabilities.

/// Simonyan & Zisserman 2014 (arXiv 1409.1556), configuration D: 138,357,544 parameters. x [N, H, W, C] ->
/// [N, classes], H and W of 32 or more.
Sequential vgg16(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});
/// Krizhevsky 2014 (arXiv 1404.5997), the one-tower form: 61,100,840 parameters. x [N, H, W, C] -> [N, classes], H and
/// W of 63 or more.
Sequential alexnet(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});

}  // namespace trireme
