// JPEG (ITU-T T.81) by libjpeg-turbo: only the rows and blocks that are asked for, at 1/1 to 1/8 of the size.
#pragma once
#include <memory>
#include <span>

#include "datasets/images/pixel_block.h"

namespace trireme {

/// Decodes one image after the other; none depends on those before. Not for several threads at once.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header and returns the whole image as a region. bytes must live until decode() is done. Throws Error
  /// naming source for damaged files, CMYK, and more than max_pixels.
  Region open(std::span<const std::byte> bytes, std::string_view source, Index max_pixels);
  /// Decodes at least `wanted` at 1/reduction (1, 2, 4 or 8; as libjpeg's, sides rounded up) to RGB or grey (channels 3
  /// or 1). The values are those of decoding the whole image. Throws Error naming source: missing pixels are an error;
  /// stray bytes, common in the wild, are not. A file that breaks off is always found, other damage where it is
  /// decoded.
  void decode(const Region& wanted, int reduction, int channels, PixelBlock& block, std::string_view source);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
