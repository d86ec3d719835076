// Random crops and mirror images of small pictures, as CIFAR's recipes have them (He et al. 2015, arXiv 1512.03385,
// section 4.2).
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// Options of augmented() (torchvision's RandomCrop(size, padding) and RandomHorizontalFlip).
struct AugmentOptions {
  Index pad = 4;     ///< black pixels around the picture, out of which one of its own size is cut at random
  bool flip = true;  ///< mirror left and right, half of the time
};
/// Samples [height, width, C] of data, each changed by a pure function of (AugmentKey, id). For training only: reads of
/// the same epoch agree, those of another differ. Throws Error for samples of another rank or a negative pad.
Dataset augmented(Dataset data, const AugmentOptions& = {});

}  // namespace trireme
