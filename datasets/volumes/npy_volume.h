// Volumes in NumPy's .npy files (numpy.lib.format 1.0 to 3.0): either byte order, C or Fortran order.
#pragma once
#include <memory>
#include <string>

#include "datasets/volumes/volume_source.h"

namespace trireme {

/// Opens an .npy file. Throws Error that names path for a file that is not .npy or whose length differs from its
/// header, for element types without a VoxelType, and as volume_shape().
std::unique_ptr<const VolumeSource> open_npy(const std::string& path);

}  // namespace trireme
