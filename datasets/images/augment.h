// Random crops and flips of small pictures, as in CIFAR's recipes (He et al. 2015, arXiv 1512.03385,
// section 4.2).
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// Options of augmented() (torchvision's RandomCrop(size, padding) and RandomHorizontalFlip).
struct AugmentOptions {
  Index pad = 4;     ///< black pixels added on each side before a random crop of the original size; at least 0
  bool flip = true;  ///< mirror horizontally with probability 1/2
};
/// The samples [height, width, C] of data with random augmentation, a pure function of (AugmentKey, id), where
/// AugmentKey (datasets/core/dataset.h) holds the loader's seed and the epoch. For training only: reads of one sample
/// agree within an epoch and differ between epochs. Throws Error for samples with other axes, or a negative pad.
Dataset augmented(Dataset data, const AugmentOptions& = {});

}  // namespace trireme
