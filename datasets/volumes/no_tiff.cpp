// Replaces tiff_volume.cpp in builds without libtiff.
#include "datasets/volumes/tiff_volume.h"

namespace trireme {

std::unique_ptr<const VolumeSource> open_tiff(const std::string& path) {
  fail("volume", "{}: this build does not read TIFF: it was made without libtiff (Debian: libtiff-dev)", path);
}

}  // namespace trireme
