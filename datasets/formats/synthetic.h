// Synthetic: a generated data set, noise around one random prototype per class, which a model can learn.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// Options of Synthetic().
struct SyntheticOptions {
  Index size = 1024;       ///< samples
  Shape shape{28, 28, 1};  ///< shape of one sample, channels last
  Index classes = 10;      ///< labels are drawn uniformly from [0, classes)
  std::uint64_t seed = 0;  ///< random seed of prototypes, labels and noise (Philox)
  Index first =
      0;  ///< number of the first sample: data sets with disjoint ranges have equal classes and different samples
  bool dense = false;  ///< true: a separate label for each pixel
};
/// Samples are u8, (prototype of the class + 3 x noise) / 4. dense: samples are tensors; x is f32 of `shape` in [0, 1],
/// (class of the pixel) / classes + noise, and y is i64 of that shape without channels. Sample id is a pure function of
/// (seed, first + id). Throws Error for a negative size, an extent below 1 and classes below 1.
Dataset Synthetic(const SyntheticOptions& = {});

}  // namespace trireme
