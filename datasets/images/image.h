// Images from files: PNG (libpng) and JPEG (libjpeg-turbo), to u8 H,W,C.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// Images of more pixels are refused unless asked for.
inline constexpr Index most_pixels = Index{1} << 26;

/// u8 [height, width, channels] of a PNG's or JPEG's bytes: channels 1 (grey, Rec. 601 luma) or 3 (RGB). As PIL's
/// convert("L") and convert("RGB"): alpha is dropped, gamma and EXIF orientation are ignored. CMYK and 16-bit images
/// are refused. Refuses dimensions over max_pixels, and what needs more memory than 64 MB + 4x the file, before
/// allocating. Throws Error naming source.
Tensor decode_image(std::span<const std::byte> bytes, int channels, const std::string& source,
                    Index max_pixels = most_pixels);
/// decode_image() of a file. Throws Error naming path for a file that cannot be read or decoded.
Tensor read_image(const std::string& path, int channels);
/// Bilinear, antialiased when shrinking (a triangle filter as wide as the scale, as PIL's), to [height,
/// width, C]; u8 in, u8 out.
Tensor resize(const Tensor& image, Index height, Index width);

/// A PNG file of u8 [height, width, 1 (grey) or 3 (RGB)]: decode_image reads it back.
std::vector<std::byte> encode_png(const Tensor& image);

}  // namespace trireme
