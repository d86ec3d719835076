// PNG decoder (ISO/IEC 15948) with libpng.
#pragma once
#include <span>

#include "datasets/images/pixel_block.h"

namespace trireme {

/// Decodes the whole image to RGB or grey (channels 3 or 1); alpha is dropped. Throws Error that names source for
/// damaged files, 16-bit images, and more than max_pixels.
void decode_png(std::span<const std::byte> bytes, int channels, PixelBlock& block, std::string_view source,
                Index max_pixels);

}  // namespace trireme
