// Volumes as TIFF files (TIFF 6.0, BigTIFF), whose pages are slices along D: strips and tiles, compressed as libtiff
// can unpack it, grey or of several channels side by side. Integers of 8 to 64 bits, floats of 16 to 64. Of one page
// whose description is ImageJ's (of more than 4 GiB) or tifffile's (truncated) the slices behind it, too.
#pragma once
#include <memory>
#include <string>

#include "datasets/volumes/volume_source.h"

namespace trireme {

/// Throws Error naming path, and the page, for a file that is no TIFF or cut short, for pages that differ in size or
/// type, palettes, other colour spaces than RGB, planes behind each other, other types, strips or tiles of more than
/// 2^29 bytes, and slices without pages that are compressed or cut short; always where this library was built without
/// libtiff. Thumbnails (reduced images) are left out.
std::unique_ptr<const VolumeSource> open_tiff(const std::string& path);

}  // namespace trireme
