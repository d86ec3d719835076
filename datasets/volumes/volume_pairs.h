// VolumePairs: a data set of crops from pairs of volume files, an input and its target.
#pragma once
#include <string>

#include "datasets/core/dataset.h"
#include "datasets/volumes/volume_task.h"

namespace trireme {

/// Options of VolumePairs().
struct VolumePairsOptions {
  std::string root = {};                  ///< folder of train/ and val/ (or test/), with inputs/ and targets/ in each
  bool test = false;                      ///< true: val/ or test/, completely and equal in each epoch
  bool validation = false;                ///< true: likewise, but the volumes of train/ that are held out
  double validation_split = 0;            ///< share of the volumes of train/ that is held out, in [0, 1): of n sorted
                                          ///< names, those from floor(n (1 - validation_split)) on
  Shape crop{64, 64};                     ///< voxels of a sample: [h, w] (also for slices of volumes) or [d, h, w]
  VolumeTask task = VolumeTask::segment;  ///< what the targets are
  Index classes = 0;                      ///< for segmentation: number of labels, at least 2
  Index samples = 1024;                   ///< samples per training epoch, at least 1
  double mean = 0,                        ///< mean of voxel_scale() of inputs and, for denoising, of targets
      std = 0;                            ///< std of voxel_scale(), likewise
};
/// Crops of volume pairs in any format of open_volume(); only the voxels of a crop are read. Files in inputs/ and
/// targets/ form a pair if their names are equal up to the first dot; both have the same [D, H, W]. All inputs have the
/// same number of channels. Targets for segmentation have one channel of an integer type.
///
/// x is f32 [h, w, C] or [d, h, w, C]; y is i64 [h, w] or [d, h, w], or f32 with channels (VolumeTask). The position of
/// training sample id is drawn from (seed of the loader, epoch, id), uniformly over all voxels of all volumes. Test
/// samples tile each volume in order. Those at the ends are moved inside, so samples may overlap. y then has a field
/// "counted", f32 [h, w] or [d, h, w]: 1 if no earlier sample has the voxel, else 0; evaluate() uses it to count each
/// voxel once.
///
/// Throws Error for missing folders, missing or different pairs, and crops that do not fit; when a crop is read, for
/// labels outside [0, classes).
Dataset VolumePairs(const VolumePairsOptions&);

}  // namespace trireme
