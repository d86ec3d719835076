// Conversion of a tensor data set to the type of a run's activations.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// The same samples with floating-point x (not y) in that type. Returns the data set unchanged if there is nothing to
/// convert, as for pictures, which a Loader converts. Throws Error for samples without y.
Dataset in_dtype(Dataset, DType);

}  // namespace trireme
