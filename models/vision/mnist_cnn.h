// The convolutional network of the MNIST tutorials.
#pragma once
#include "models/registry/models.h"

namespace trireme {

/// The MNIST CNN of the Keras and Horovod tutorials: conv 32, conv 64, pool, dropout 0.25, fc 128, dropout
/// 0.5, fc 10: 1,199,882 parameters.
Sequential mnist_cnn(const ModelOptions& = {});

}  // namespace trireme
