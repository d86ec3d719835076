#include <png.h>

#include "datasets/images/image.h"

namespace trireme {

std::vector<std::byte> encode_png(const Tensor& image) {
  const char* op = "encode_png";
  check(image && image.dtype() == DType::u8 && image.rank() == 3 && (image.dim(2) == 1 || image.dim(2) == 3), op,
        "wants u8 [height, width, 1 or 3], got {} {}", image ? name_of(image.dtype()) : "nothing",
        image ? image.shape() : Shape{});
  check(image.numel() > 0 && image.dim(0) <= 1 << 16 && image.dim(1) <= 1 << 16, op, "an image of {}", image.shape());
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(image.dim(0)), png.width = static_cast<png_uint_32>(image.dim(1));
  png.format = image.dim(2) == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::vector<std::byte> bytes(size);
  const int done = png_image_write_to_memory(&png, bytes.data(), &size, 0, image.data<std::uint8_t>(), 0, nullptr);
  check(done != 0, op, "libpng: {}", png.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace trireme
