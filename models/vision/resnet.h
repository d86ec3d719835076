// Residual networks with torchvision's shapes and names, so that weights can be exchanged with torchvision.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// He et al. (arXiv 1512.03385): x [N, H, W, C] -> logits [N, classes]. ModelOptions::input gives C; H and W may be any
/// numbers of 32 or more. Input channels should have mean 0 and standard deviation 1, as in torchvision. resnet18 and
/// resnet34 have basic blocks, the others bottlenecks with the stride in the 3 x 3 convolution. Throws Error for an
/// input that is not [H, W, C]; numbers of parameters are for C = 3 and 1000 classes.
Sequential resnet18(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});   ///< 11,689,512 parameters
Sequential resnet34(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});   ///< 21,797,672 parameters
Sequential resnet50(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});   ///< 25,557,032 parameters
Sequential resnet101(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});  ///< 44,549,160 parameters
Sequential resnet152(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});  ///< 60,192,808 parameters

/// The networks for small pictures of section 4.2: a 3 x 3 stem and three stages of 16, 32 and 64 channels; depth is
/// 6n + 2 (20: 272,474 parameters). Shortcuts that change shape are projections (the paper's option B), so the blocks
/// are the same as in the ResNets above.
Sequential cifar_resnet(Index depth, const ModelOptions& = {.input = {32, 32, 3}});

}  // namespace trireme
