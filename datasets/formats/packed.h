// Packed images: a dataset's pixels in one file that is mapped into memory, so that training reads them without
// decoding.
//
// The file, all numbers little-endian:
// clang-format off
//   bytes  0-7    "TRIREMEP"
//   bytes  8-11   version, 1
//   bytes 12-15   length of the text, L
//   bytes 16-23   samples, N
//   bytes 24-31   how many of them are for training; the others, behind, for test
//   bytes 32-35   height
//   bytes 36-39   width
//   bytes 40-43   channels, 1 or 3
//   bytes 44-47   classes
//   bytes 48-71   f32: mean of each of three channels, then std, as PixelScale has them
//   then the text: the classes' names in order, each ended by a line feed; L bytes
//   then zeros up to a multiple of 4096, and the pixels: N x height x width x channels bytes
//   then N labels, u32 each, and the CRC-32 of the header, the text and the labels; with it the file ends
// clang-format on
#pragma once
#include <functional>
#include <span>

#include "datasets/images/encoded.h"

namespace trireme {

/// What the file says about its pixels.
struct PackedHeader {
  Index samples = 0, training = 0, height = 0, width = 0, channels = 0;
  PixelScale scale;
  std::vector<std::string> classes;
  std::vector<std::uint32_t> labels;
  std::size_t pixels_at = 0;  ///< where the pixels begin, in bytes
};
/// Reads all but the pixels of a whole file. Throws Error naming source for anything that does not fit: magic, version,
/// sizes that are not the file's, labels outside the classes, a wrong checksum.
PackedHeader parse_packed(std::span<const std::byte> file, const std::string& source);

struct PackOptions {
  int workers = 2;  ///< threads that read
  std::function<void(Index done)> progress = {};
};
/// Writes all samples of two splits of a dataset, in their order, as a temporary file that then takes path's place.
/// Throws Error when the splits are of different shapes or classes, a sample cannot be read, or the file not be
/// written.
void pack(const Dataset& train, const Dataset& test, const std::string& path, const PackOptions& = {});

struct PackedOptions {
  Index size = 0;        ///< side of the squares cut out; 0: 224, or the packed size if that is smaller
  bool augment = false;  ///< cut at random and mirror at random, by (seed, epoch, id); else the centre
};
/// One split ("train" or "test") of a packed file, as a dataset of [size, size, channels]. Throws Error as
/// parse_packed() does, for a size larger than what was packed, and for a split without samples.
Dataset Packed(const std::string& path, const std::string& split, const PackedOptions& = {});

}  // namespace trireme
