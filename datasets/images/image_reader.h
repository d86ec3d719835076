// Reading parts of image files, one after the other.
#pragma once
#include "datasets/images/crop.h"
#include "datasets/images/jpeg_decoder.h"

namespace trireme {

/// What a file is, by its first bytes. Throws Error naming source for anything else than PNG and JPEG.
bool is_png(std::span<const std::byte> bytes, std::string_view source);

/// Decodes parts of images, one after the other, keeping decoders and room. Not for several threads at once.
class ImageReader {
 public:
  /// Finds out what bytes hold and how large it is: the whole image as a region. bytes must live until decode() is
  /// done. Errors are decode_image's.
  Region open(std::span<const std::byte> bytes, std::string_view source, Index max_pixels = most_pixels);
  /// The RGB pixels of at least the crop; a JPEG is shrunk on the way as far as the crop stays at least width x height
  /// pixels. The block lives until the next open().
  const PixelBlock& decode(const Crop&, Index width, Index height, std::string_view source);

 private:
  JpegDecoder jpeg_;
  PixelBlock block_;
  Region image_;
  bool decoded_ = false;
};

}  // namespace trireme
