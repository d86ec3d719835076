// Packed images: a data set's pixels in one safetensors file that is mapped into memory, so that training reads them
// without decoding. The file's tensors and metadata:
//   "labels"    I64 [N]           in [0, classes)
//   "pixels"    U8 [N, H, W, C]   C is 1 or 3; the training samples, then those for test
//   format      "trireme packed 1"
//   train       how many samples are for training
//   classes     the classes' names in order, a JSON array
//   mean, std   numbers per channel as PixelScale has them, JSON arrays
//   crc32       of the labels and the other metadata, hexadecimal
#pragma once
#include <functional>

#include "datasets/core/dataset.h"

namespace trireme {

struct PackOptions {
  int workers = 2;                                ///< threads that read
  std::function<void(Index done)> progress = {};  ///< called with the number of samples written so far
};
/// Writes all samples of two splits of a data set, in their order, as a temporary file that then takes path's place.
/// Throws Error when the splits are of different shapes or classes, the samples are not [height, width, 1 or 3], a
/// sample cannot be read, or the file not be written.
void pack(const Dataset& train, const Dataset& test, const std::string& path, const PackOptions& = {});

struct PackedOptions {
  Index size = 0;        ///< side of the squares cut out, in pixels; 0: 224, or the packed size if that is smaller
  bool augment = false;  ///< cut at random and mirror at random, by (seed, epoch, id); else the centre
};
/// One split ("train" or "test") of a packed file, as a data set of [size, size, C]. Throws Error naming path for a
/// file that is no packed one, is damaged or of an older format, for a size larger than the packed images, and for a
/// split without samples.
Dataset Packed(const std::string& path, const std::string& split, const PackedOptions& = {});

}  // namespace trireme
