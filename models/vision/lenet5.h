// LeNet-5.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// LeCun et al. 1998, in the form of current tutorials: conv 6@5x5 (pad 2), pool, conv 16@5x5, pool, fc 120,
/// fc 84, fc 10; ReLU, max pooling.
Sequential lenet5(const ModelOptions& = {});

}  // namespace trireme
