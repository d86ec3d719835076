// JPEG (ITU-T T.81) by libjpeg-turbo: decodes only the requested rows and blocks, at 1/1 to 1/8 of the size.
#pragma once
#include <memory>
#include <span>

#include "datasets/images/pixel_block.h"

namespace trireme {

/// Decodes images one at a time; images do not depend on earlier ones. For one thread.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header and returns the region of the whole image. bytes must live until decode() returns. Throws Error
  /// that names source for damaged files, CMYK, and more than max_pixels.
  Region open(std::span<const std::byte> bytes, std::string_view source, Index max_pixels);
  /// Decodes at least `wanted` at 1/reduction (1, 2, 4 or 8; as libjpeg's, sides rounded up) to RGB or grey (channels 3
  /// or 1). The values are the same as when the whole image is decoded. Throws Error that names source for missing
  /// pixels; stray bytes, which are common, are accepted. A truncated file is always detected, other damage only in the
  /// decoded part.
  void decode(const Region& wanted, int reduction, int channels, PixelBlock& block, std::string_view source);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
