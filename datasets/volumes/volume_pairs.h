// Crops of volumes in files as a data set: what was measured beside what is to be made of it.
#pragma once
#include <string>

#include "datasets/core/dataset.h"
#include "datasets/volumes/volume_task.h"

namespace trireme {

/// Options of VolumePairs().
struct VolumePairsOptions {
  std::string root = {};  ///< folder of train/ and val/ (or test/), with inputs/ and targets/ in each
  bool test = false;      ///< of val/ or test/: all of it, the same in each epoch
  Shape crop{64, 64};     ///< [h, w], slices of volumes, too; or [d, h, w]
  VolumeTask task = VolumeTask::segment;
  Index classes = 0;         ///< to segment: how many labels there are, at least 2
  Index samples = 1024;      ///< of an epoch of training, at least 1
  double mean = 0, std = 0;  ///< voxel_scale() of inputs and, to denoise, of targets
};
/// Volumes of any format of open_volume(), which read what a crop needs: those of inputs/ and targets/ belong together
/// whose names are the same up to the first dot, and are of one [D, H, W]; inputs have as many channels as each other,
/// to segment targets have one, of an integer type. Sample id of an epoch is a crop at a place drawn by (seed of the
/// loader, epoch, id), each voxel of all volumes as likely a corner as the others; test samples lie side by side,
/// volume by volume, those at the ends moved in, so that they may overlap: then y has a field "counted", f32 of [h, w]
/// or [d, h, w], 1 where no sample before has the voxel and 0 elsewhere, by which evaluate() counts each voxel once. x
/// f32 [h, w, C] or [d, h, w, C]; y i64 [h, w] or [d, h, w], or f32 with channels (VolumeTask). Throws Error for
/// folders and pairs that are missing or do not match, crops that do not fit, and, when a crop is read, labels outside
/// [0, classes).
Dataset VolumePairs(const VolumePairsOptions&);

}  // namespace trireme
