// A multilayer perceptron.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// Linear 512 - relu - Linear 256 - relu - Linear classes over the flattened input.
Sequential mlp(const ModelOptions& = {});

}  // namespace trireme
