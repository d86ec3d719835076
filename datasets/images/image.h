// Decoding of PNG (libpng) and JPEG (libjpeg-turbo) files to tensors u8 [H, W, C].
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// Default limit of pixels in an image.
inline constexpr Index most_pixels = Index{1} << 26;

/// Decodes the bytes of a PNG or JPEG file to u8 [height, width, channels]. channels: 1 (grey, Rec. 601 luma) or 3
/// (RGB). As PIL's convert("L") and convert("RGB"): alpha is dropped, gamma and EXIF orientation are ignored. Throws
/// Error that names source for damaged files, CMYK and 16-bit images, and, before allocating, for more than max_pixels
/// and for a decoder that needs more than 64 MB + 4x the file's size.
Tensor decode_image(std::span<const std::byte> bytes, int channels, const std::string& source,
                    Index max_pixels = most_pixels);
/// decode_image() of a file. Throws Error that names path if it cannot be read or decoded.
Tensor read_image(const std::string& path, int channels);
/// Resizes u8 [h, w, C] to u8 [height, width, C]: bilinear, antialiased when shrinking (a triangle filter as wide as
/// the scale, as in PIL).
Tensor resize(const Tensor& image, Index height, Index width);

/// The bytes of a PNG file of u8 [height, width, 1 (grey) or 3 (RGB)], which decode_image() reads.
std::vector<std::byte> encode_png(const Tensor& image);

}  // namespace trireme
