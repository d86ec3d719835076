// What the image decoders share: a block of decoded pixels, and how much memory a file may make them use.
#pragma once
#include <string_view>
#include <vector>

#include "datasets/images/image.h"

namespace trireme {

/// A rectangle of an image that may have been shrunk while it was decoded: pixel (0, 0) of the block is pixel (left,
/// top) of the image at 1/reduction of its size. Values are [height, width, channels]. Keeps its room from image to
/// image.
struct PixelBlock {
  Index left = 0, top = 0, width = 0, height = 0, channels = 3;
  int reduction = 1;
  std::vector<std::uint8_t> values;

  Index line() const { return width * channels; }
};

/// A part of an image in its whole pixels.
struct Region {
  Index left = 0, top = 0, width = 0, height = 0;
};

/// Refuses an image of more than max_pixels, and one that needs more than 64 MB + 4x its file to decode: a small file
/// must not be able to take all memory.
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
