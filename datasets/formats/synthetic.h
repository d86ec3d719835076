// A data set made from nothing: learnable noise around one random prototype per class.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// Options of Synthetic().
struct SyntheticOptions {
  Index size = 1024;       ///< samples
  Shape shape{28, 28, 1};  ///< of one sample, channels last
  Index classes = 10;      ///< labels are drawn uniformly from [0, classes)
  std::uint64_t seed = 0;  ///< of prototypes, labels and noise (Philox)
  Index first = 0;         ///< number of the first sample: data sets that do not overlap share classes, not samples
  bool dense = false;      ///< each pixel has a label of its own
};
/// u8 samples (prototype of the class + 3 x noise) / 4; dense: samples are tensors, x f32 of `shape`, in [0, 1], the
/// class of each pixel as a share of the number of classes + noise, y i64 of that shape without its channels. Sample id
/// is a pure function of (seed, first + id). Throws Error for a negative size, an extent below 1 and classes below 1.
Dataset Synthetic(const SyntheticOptions& = {});

}  // namespace trireme
