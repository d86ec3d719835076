// Residual networks of torchvision's shapes and names: weights of either load in the other.
#pragma once
#include "models/models.h"

namespace trireme {

/// x [N, H, W, C] -> [N, classes]. ModelOptions' input gives C; any H, W of 32 or more serve.
Sequential resnet18(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});
Sequential resnet34(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});
Sequential resnet50(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});  ///< 25,557,032 parameters
Sequential resnet101(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});
Sequential resnet152(const ModelOptions& = {.input = {224, 224, 3}, .classes = 1000});

}  // namespace trireme
