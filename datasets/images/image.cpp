#include "datasets/images/image.h"

#include <cstring>

#include "datasets/core/files.h"
#include "datasets/images/image_reader.h"
#include "datasets/images/png_decoder.h"

namespace trireme {
Tensor decode_image(std::span<const std::byte> bytes, int channels, const std::string& source, Index max_pixels) {
  check(channels == 1 || channels == 3, "image", "channels is {}, it must be 1 (grey) or 3 (RGB)", channels);
  PixelBlock block;
  if (is_png(bytes, source)) {
    decode_png(bytes, channels, block, source, max_pixels);
  } else {
    JpegDecoder jpeg;
    jpeg.decode(jpeg.open(bytes, source, max_pixels), 1, channels, block, source);
  }
  Tensor image = Tensor::empty({block.height, block.width, channels}, DType::u8);
  std::memcpy(image.data<std::uint8_t>(), block.values.data(), block.values.size());
  return image;
}

Tensor read_image(const std::string& path, int channels) { return decode_image(read_bytes(path), channels, path); }

}  // namespace trireme
