// Volumes as TIFF files (TIFF 6.0, BigTIFF) whose pages are slices along D. Strips and tiles in any compression of
// libtiff, grey or with interleaved channels; integers of 8 to 64 bits, floats of 16 to 64. If a file has one page with
// a description by ImageJ (more than 4 GiB) or tifffile (truncated), the slices after that page are read, too.
#pragma once
#include <memory>
#include <string>

#include "datasets/volumes/volume_source.h"

namespace trireme {

/// Opens a TIFF file. Pages that are thumbnails (reduced images) or masks are ignored. Throws Error that names path and
/// page for
/// - a file that is not TIFF or is truncated, and any file if the library was built without libtiff;
/// - pages that differ in size or type, and other number types;
/// - pages along several axes, such as channels by slices, by the description of ImageJ, OME-XML or tifffile;
/// - palettes, colour spaces other than RGB, and separate colour planes;
/// - strips or tiles of more than 2^29 bytes;
/// - slices without pages that are compressed or truncated.
std::unique_ptr<const VolumeSource> open_tiff(const std::string& path);

}  // namespace trireme
