// PNG and JPEG files for tests, made in memory.
#pragma once
#include <jpeglib.h>
#include <png.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "kernels/core/error.h"
#include "tests/datasets/idx_files.h"

namespace trireme::test {

/// What libpng makes of pixels in one of its formats.
inline Bytes png(const void* pixels, png_uint_32 width, png_uint_32 height, png_uint_32 format,
                 const void* colors = nullptr, png_uint_32 entries = 0) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = format;
  image.colormap_entries = entries;
  Bytes out(100000);
  png_alloc_size_t size = out.size();
  const bool written = png_image_write_to_memory(&image, out.data(), &size, 0, pixels, 0, colors) != 0;
  check(written, "test", "libpng: {}", image.message);
  out.resize(size);
  return out;
}

struct JpegOptions {
  J_COLOR_SPACE space = JCS_RGB;  ///< of the pixels
  int quality = 95;
  bool progressive = false;
  int sampling = 1;  ///< of the chroma, in both directions: 2 is 4:2:0
};
/// What libjpeg makes of interleaved pixels.
inline Bytes jpeg(const Bytes& pixels, int width, int height, const JpegOptions& options = {}) {
  jpeg_compress_struct c{};
  jpeg_error_mgr errors;
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* to = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &to, &size);
  c.image_width = static_cast<JDIMENSION>(width);
  c.image_height = static_cast<JDIMENSION>(height);
  c.in_color_space = options.space;
  c.input_components = options.space == JCS_GRAYSCALE ? 1 : options.space == JCS_CMYK ? 4 : 3;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, options.quality, TRUE);
  c.comp_info[0].h_samp_factor = c.comp_info[0].v_samp_factor = options.sampling;
  if (options.progressive) jpeg_simple_progression(&c);
  jpeg_start_compress(&c, TRUE);
  while (c.next_scanline < c.image_height) {
    auto* row = const_cast<JSAMPLE*>(pixels.data()) +
                static_cast<std::size_t>(c.next_scanline) * static_cast<std::size_t>(width * c.input_components);
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  Bytes out(to, to + size);
  jpeg_destroy_compress(&c);
  std::free(to);
  return out;
}

/// RGB with edges and gradients, different everywhere.
inline Bytes photo(int width, int height) {
  Bytes pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const double wave = std::sin(0.07 * x + 0.002 * x * y / 7.0) + std::cos(0.05 * y);
      const bool inside = std::hypot(x - 0.4 * width, y - 0.6 * height) < 0.3 * height;
      pixels.push_back(static_cast<std::uint8_t>(inside ? 220 - 60 * wave / 2 : 128 + 50 * wave));
      pixels.push_back(static_cast<std::uint8_t>((x * 3 + y) % 256 / 2 + (inside ? 90 : 20)));
      pixels.push_back(static_cast<std::uint8_t>(60 + 30 * std::sin(0.3 * x) + 80.0 * y / height));
    }
  return pixels;
}

}  // namespace trireme::test
