// Packed images: a data set's pixels in one safetensors file that is mapped into memory, so that training needs no
// decoding. The file's tensors and metadata:
//   "labels"    I64 [N]           in [0, classes)
//   "pixels"    U8 [N, H, W, C]   C is 1 or 3; training samples, then test samples
//   format      "trireme packed 1"
//   train       number of training samples
//   classes     class names in label order, a JSON array
//   mean, std   numbers per channel as in PixelScale, JSON arrays
//   crc32       of the labels and the other metadata, hexadecimal
#pragma once
#include <functional>

#include "datasets/core/dataset.h"

namespace trireme {

/// Options of pack().
struct PackOptions {
  int workers = 2;                                ///< number of reading threads
  std::function<void(Index done)> progress = {};  ///< called with the number of samples written so far
};
/// Writes all samples of two splits of a data set, in order, to a temporary file and renames it to path. Throws Error
/// if the splits have different shapes or classes, samples are not [height, width, 1 or 3], a sample cannot be read, or
/// the file cannot be written.
void pack(const Dataset& train, const Dataset& test, const std::string& path, const PackOptions& = {});

/// Options of Packed().
struct PackedOptions {
  Index size = 0;        ///< side of the square crops in pixels; 0: 224, or the packed size if that is smaller
  bool augment = false;  ///< true: random crop and flip, a function of (seed, epoch, id); false: centre
};
/// One split ("train" or "test") of a packed file, as a data set of [size, size, C]. Throws Error that names path for a
/// file that is not a packed file, is damaged or has an older format, for a size larger than the packed images, and for
/// a split without samples.
Dataset Packed(const std::string& path, const std::string& split, const PackedOptions& = {});

}  // namespace trireme
