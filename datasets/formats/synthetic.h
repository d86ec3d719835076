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
  /// Number of the first sample. Data sets with the same seed and disjoint ranges of numbers have the same classes and
  /// different samples: a training and a test set.
  Index first = 0;
  bool dense = false;  ///< true: each pixel has a label
};
/// A data set of pictures: u8 [shape...], (prototype of the class + 3 x noise) / 4. With dense, samples are tensors: x
/// is f32 [shape...] in [0, 1], (class of the pixel) / classes + noise; y is i64 [shape without channels], the classes.
/// Sample `id` is a function of seed and first + id only. Throws Error for a negative size, an extent below 1 and
/// classes below 1.
Dataset Synthetic(const SyntheticOptions& = {});

}  // namespace trireme
