// ImageReader: decodes parts of image files.
#pragma once
#include "datasets/images/crop.h"
#include "datasets/images/jpeg_decoder.h"

namespace trireme {

/// Whether a file is PNG (true) or JPEG (false), by its first bytes. Throws Error that names source for other formats.
bool is_png(std::span<const std::byte> bytes, std::string_view source);

/// Decodes parts of images, one at a time; reuses decoders and memory. For one thread.
class ImageReader {
 public:
  /// Reads the header and returns the region of the whole image. bytes must live until decode() returns. Throws Error
  /// as decode_image().
  Region open(std::span<const std::byte> bytes, std::string_view source, Index max_pixels = most_pixels);
  /// Decodes the RGB pixels of at least the crop. A JPEG is decoded at the smallest size at which the crop has at least
  /// width x height pixels. The block is valid until the next open().
  const PixelBlock& decode(const Crop&, Index width, Index height, std::string_view source);

 private:
  JpegDecoder jpeg_;
  PixelBlock block_;
  Region image_;
  bool decoded_ = false;
};

}  // namespace trireme
