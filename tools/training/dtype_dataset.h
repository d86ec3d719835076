// A data set of tensors in the type of a run's activations.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// The same samples, with the floats of x (not of y) in that type; the data set itself where there is nothing to
/// convert, as in pictures, which a Loader converts. Throws Error for samples without y.
Dataset in_dtype(Dataset, DType);

}  // namespace trireme
