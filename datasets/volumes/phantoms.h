// Crops of phantoms as a data set: pictures of ellipsoids with their labels, or to be freed of noise and artefacts.
#pragma once
#include "datasets/core/dataset.h"
#include "datasets/volumes/phantom.h"
#include "datasets/volumes/volume_task.h"

namespace trireme {

/// Options of Phantoms().
struct PhantomsOptions {
  PhantomOptions phantom = {};
  Index phantoms = 16;  ///< so many different ones, at least 1
  Shape crop{64, 64};   ///< [h, w], slices of volumes, too; or [d, h, w]
  VolumeTask task = VolumeTask::segment;
  Index samples = 1024;  ///< of an epoch, at least 1
  bool test = false;     ///< other phantoms, crops that are the same in each epoch
};
/// Sample id is a crop of phantom id mod phantoms, at a place drawn by (seed of the loader, epoch, id), of a test split
/// by (PhantomOptions::seed, id): x its image(), f32 [h, w, 1] or [d, h, w, 1]; y its labels(), i64, or clean(), f32 of
/// x's shape. classes() are the phantom's; 0 to denoise. Throws Error as Phantom, and for crops that do not fit.
Dataset Phantoms(const PhantomsOptions& = {});

}  // namespace trireme
