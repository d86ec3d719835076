#include "datasets/images/image.h"

#include <png.h>

#include <cstring>

#include "datasets/images/image_reader.h"
#include "datasets/images/png_decoder.h"
#include "datasets/images/resize.h"
#include "framework/io/file.h"

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

Tensor resize(const Tensor& image, Index height, Index width) {
  check(image && image.rank() == 3 && image.dtype() == DType::u8, "resize",
        "expected an image [height, width, channels] of u8, got {} of {}", image ? image.shape() : Shape{},
        image ? image.dtype() : DType::f32);
  check(image.numel() > 0, "resize", "the image {} is empty", image.shape());
  check(height > 0 && width > 0, "resize", "the new size is {} x {}, both must be at least 1", height, width);
  if (image.dim(0) == height && image.dim(1) == width) return image.clone();

  PixelBlock block{.width = image.dim(1), .height = image.dim(0), .channels = image.dim(2), .values = {}};
  block.values.assign(image.data<std::uint8_t>(), image.data<std::uint8_t>() + image.numel());
  Tensor result = Tensor::empty({height, width, block.channels}, DType::u8);
  const Crop all{.width = static_cast<double>(block.width), .height = static_cast<double>(block.height)};
  Resizer()(block, all, height, width, result.data<std::uint8_t>());
  return result;
}

std::vector<std::byte> encode_png(const Tensor& image) {
  const char* op = "encode_png";
  check(image && image.dtype() == DType::u8 && image.rank() == 3 && (image.dim(2) == 1 || image.dim(2) == 3), op,
        "expected u8 [height, width, 1 or 3], got {} {}", image ? name_of(image.dtype()) : "nothing",
        image ? image.shape() : Shape{});
  check(image.numel() > 0 && image.dim(0) <= 1 << 16 && image.dim(1) <= 1 << 16, op, "an image of {}", image.shape());
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(image.dim(0));
  png.width = static_cast<png_uint_32>(image.dim(1));
  png.format = image.dim(2) == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::vector<std::byte> bytes(size);
  const int done = png_image_write_to_memory(&png, bytes.data(), &size, 0, image.data<std::uint8_t>(), 0, nullptr);
  check(done != 0, ErrorKind::internal, op, "libpng: {}", png.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace trireme
