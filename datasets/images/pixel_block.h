// Shared by the image decoders: a block of decoded pixels, and the limit of memory per file.
#pragma once
#include <string_view>
#include <vector>

#include "datasets/images/image.h"

namespace trireme {

/// A rectangle of an image, possibly decoded at a reduced size: pixel (0, 0) of the block is pixel (left, top) of the
/// image at 1/reduction of its size. Reuses its memory for later images.
struct PixelBlock {
  Index left = 0, top = 0, width = 0, height = 0, channels = 3;
  int reduction = 1;                 ///< 1, 2, 4 or 8
  std::vector<std::uint8_t> values;  ///< [height, width, channels]

  Index line() const { return width * channels; }  ///< values per row
};

/// A rectangle of an image in whole pixels of the full size.
struct Region {
  Index left = 0, top = 0, width = 0, height = 0;
};

/// Throws Error that names source for an image of more than max_pixels, and for one that needs more than 64 MB + 4x its
/// file's size to decode, so that a small file cannot exhaust the memory.
inline void check_room(Index width, Index height, Index bytes_needed, std::size_t file_bytes, Index max_pixels,
                       std::string_view source) {
  check(width > 0 && height > 0 && width <= max_pixels / height, ErrorKind::data, "image",
        "{}: {} x {} pixels, at most {} in all are decoded", source, width, height, max_pixels);
  const Index room = (Index{64} << 20) + 4 * static_cast<Index>(file_bytes);
  check(bytes_needed <= room, ErrorKind::data, "image",
        "{}: {} x {} pixels need {} bytes of memory, at most {} are spent on a file of {}: make it smaller first",
        source, width, height, bytes_needed, room, file_bytes);
}

}  // namespace trireme
