// libFuzzer entry for the JPEG and PNG decoders; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp datasets/images/image_reader.cpp datasets/images/jpeg_decoder.cpp
// sources: datasets/images/png_decoder.cpp datasets/images/crop.cpp
// libraries: -ljpeg -lpng -lz
//
// What is accepted has the size it says; a part is the same part of the whole; an error is one line that names the
// file.
#include <cstdlib>
#include <optional>
#include <string_view>

#include "datasets/images/image_reader.h"
#include "datasets/images/png_decoder.h"

using namespace trireme;

namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

/// False when f throws the Error that it may.
template <class F>
bool accepts(const F& f) {
  try {
    f();
    return true;
  } catch (const Error& error) {
    const std::string_view what = error.what();
    require(what.starts_with("image: F: ") && what.size() < 400 && what.find('\n') == what.npos);
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  // Large images are rare here, since they take long; their memory is bounded all the same.
  const Index most = size % 16 == 0 ? most_pixels : Index{1} << 18;
  static ImageReader reader;
  Region image;
  if (!accepts([&] { image = reader.open(bytes, "F", most); })) return 0;
  require(image.width >= 1 && image.height >= 1 && image.width <= most / image.height);

  constexpr Index side = 12;
  Crop crop = random_resized_crop(image.width, image.height, {.seed = size, .epoch = 0}, 0);
  for (const bool bounded : {true, false}) {
    crop.bounded = bounded;
    if (!accepts([&] { reader.open(bytes, "F", most); })) std::abort();
    accepts([&] {
      const PixelBlock& block = reader.decode(crop, side, side, "F");
      require(block.values.size() == static_cast<std::size_t>(block.line() * block.height));
    });
  }
  if (image.width * image.height > Index{1} << 18) return 0;

  static JpegDecoder jpeg;
  static PixelBlock whole, part;
  if (size >= 1 && data[0] == 0x89) {
    accepts([&] { decode_png(bytes, 1, whole, "F", most); });
    return 0;
  }
  const bool decoded = accepts([&] { jpeg.decode(jpeg.open(bytes, "F", most), 1, 3, whole, "F"); });
  if (!decoded) return 0;
  require(whole.width == image.width && whole.height == image.height);
  const Region half{image.width / 2, image.height / 3, (image.width + 1) / 2, (image.height + 2) / 3};
  require(accepts([&] {
    jpeg.open(bytes, "F", most);
    jpeg.decode(half, 1, 3, part, "F");
  }));
  for (Index y = half.top; y < half.top + half.height; ++y)
    for (Index x = 3 * half.left; x < 3 * (half.left + half.width); ++x)
      require(whole.values[static_cast<std::size_t>(y * whole.line() + x)] ==
              part.values[static_cast<std::size_t>((y - part.top) * part.line() + x - 3 * part.left)]);
  return 0;
}
