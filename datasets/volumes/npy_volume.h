// Volumes in NumPy's .npy files (numpy.lib.format 1.0 to 3.0): either byte order, in C's order or Fortran's.
#pragma once
#include <memory>
#include <string>

#include "datasets/volumes/volume_source.h"

namespace trireme {

/// Throws Error naming path for a file that is no .npy, or not as long as its header says, for elements of other types
/// than VoxelType's, and for arrays that are no volume.
std::unique_ptr<const VolumeSource> open_npy(const std::string& path);

}  // namespace trireme
