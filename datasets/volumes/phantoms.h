// Phantoms: a synthetic data set of crops of Phantom, for segmentation or for denoising.
#pragma once
#include "datasets/core/dataset.h"
#include "datasets/volumes/phantom.h"
#include "datasets/volumes/volume_task.h"

namespace trireme {

/// Options of Phantoms().
struct PhantomsOptions {
  PhantomOptions phantom = {};            ///< size, classes, noise and artefacts of the phantoms
  Index phantoms = 16;                    ///< number of different phantoms, at least 1
  Shape crop{64, 64};                     ///< voxels of a sample: [h, w] (also for slices of volumes) or [d, h, w]
  VolumeTask task = VolumeTask::segment;  ///< what y is
  Index samples = 1024;                   ///< samples per epoch, at least 1
  bool test = false;                      ///< true: other phantoms, and the same crops in each epoch
  bool validation = false;                ///< true: likewise, with phantoms that neither split has
};
/// Sample id is a crop of phantom number id mod phantoms. Its position is drawn from (seed of the loader, epoch, id),
/// for a test split from (PhantomOptions::seed, id). x is image(), f32 [h, w, 1] or [d, h, w, 1]. y is labels(), i64
/// without the last axis, or clean(), f32 of x's shape. classes() is PhantomOptions::classes, or 0 for denoising.
/// Throws Error as Phantom, and for crops larger than the phantom.
Dataset Phantoms(const PhantomsOptions& = {});

}  // namespace trireme
