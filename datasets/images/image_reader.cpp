#include "datasets/images/image_reader.h"

#include <cmath>
#include <cstring>

#include "datasets/images/png_decoder.h"

namespace trireme {

bool is_png(std::span<const std::byte> bytes, std::string_view source) {
  const auto begins_with = [&](std::string_view signature) {
    return bytes.size() >= signature.size() && std::memcmp(bytes.data(), signature.data(), signature.size()) == 0;
  };
  constexpr std::string_view op = "image";
  check(!bytes.empty(), ErrorKind::data, op, "{}: is empty", source);
  const bool png = begins_with("\x89PNG\r\n\x1a\n");
  check(png || begins_with("\xff\xd8\xff"), ErrorKind::data, op, "{}: is neither PNG nor JPEG", source);
  return png;
}

Region ImageReader::open(std::span<const std::byte> bytes, std::string_view source, Index max_pixels) {
  decoded_ = is_png(bytes, source);
  if (!decoded_) return image_ = jpeg_.open(bytes, source, max_pixels);
  decode_png(bytes, 3, block_, source, max_pixels);
  return image_ = {0, 0, block_.width, block_.height};
}

const PixelBlock& ImageReader::decode(const Crop& crop, Index width, Index height, std::string_view source) {
  if (decoded_) return block_;
  // Blocks of 8 x 8 are decoded to 8, 4, 2 or 1: the sizes with vector code in libjpeg-turbo.
  int reduction = 1;
  while (reduction < 8 && crop.width >= static_cast<double>(2 * reduction * width) &&
         crop.height >= static_cast<double>(2 * reduction * height))
    reduction *= 2;
  const auto whole = [](double begin, double extent, Index all, Index& first, Index& count) {
    first = std::clamp<Index>(static_cast<Index>(std::floor(begin)), 0, all - 1);
    count = std::clamp<Index>(static_cast<Index>(std::ceil(begin + extent)), first + 1, all) - first;
  };
  // With an unbounded crop the filter reads pixels outside, as if the whole image were resized.
  const double reach_x = crop.bounded ? 0 : crop.width / static_cast<double>(width) + 1;
  const double reach_y = crop.bounded ? 0 : crop.height / static_cast<double>(height) + 1;
  Region wanted;
  whole(crop.left - reach_x, crop.width + 2 * reach_x, image_.width, wanted.left, wanted.width);
  whole(crop.top - reach_y, crop.height + 2 * reach_y, image_.height, wanted.top, wanted.height);
  jpeg_.decode(wanted, reduction, 3, block_, source);
  return block_;
}

}  // namespace trireme
