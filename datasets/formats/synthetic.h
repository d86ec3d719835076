// A data set made from nothing: learnable noise around one random prototype per class.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

struct SyntheticOptions {
  Index size = 1024;  ///< samples
  Shape shape{28, 28, 1};
  Index classes = 10;
  std::uint64_t seed = 0;
  Index first = 0;  ///< number of the first sample: data sets that do not overlap share classes, not samples
};
/// Sample id is a pure function of (seed, first + id). Throws Error for a negative size, an extent below 1 and classes
/// below 1.
Dataset Synthetic(const SyntheticOptions& = {});

}  // namespace trireme
