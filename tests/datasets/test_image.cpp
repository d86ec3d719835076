#include <cstring>

#include "datasets/images/image.h"
#include "datasets/images/jpeg_decoder.h"
#include "tests/datasets/image_files.h"
#include "tests/support/catch.h"

namespace test_image {

using namespace trireme;
using namespace trireme::test;

namespace {

Tensor decode(const Bytes& bytes, int channels, Index max_pixels = 1 << 26) {
  return decode_image(std::as_bytes(std::span(bytes)), channels, "F", max_pixels);
}
Bytes values(const Tensor& image) { return {image.data<std::uint8_t>(), image.data<std::uint8_t>() + image.numel()}; }
Tensor image(const Shape& shape, const Bytes& bytes) {
  Tensor t = Tensor::empty(shape, DType::u8);
  std::memcpy(t.data<std::uint8_t>(), bytes.data(), bytes.size());
  return t;
}

const Bytes colors{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 255, 255, 255, 0, 0, 0};  // 3 x 2 RGB
const Bytes lumas{76, 150, 29, 18, 255, 0};                                               // PIL's convert("L")

}  // namespace

TEST_CASE("image: PNG of every kind") {
  const Bytes rgb = png(colors.data(), 3, 2, PNG_FORMAT_RGB);
  CHECK(decode(rgb, 3).shape() == Shape{2, 3, 3});
  CHECK(values(decode(rgb, 3)) == colors);
  CHECK(values(decode(rgb, 1)) == lumas);

  const Bytes grey = png(lumas.data(), 3, 2, PNG_FORMAT_GRAY);
  CHECK(values(decode(grey, 1)) == lumas);
  CHECK(values(decode(grey, 3)) == Bytes{76, 76, 76, 150, 150, 150, 29, 29, 29, 18, 18, 18, 255, 255, 255, 0, 0, 0});

  const Bytes rgba{200, 100, 50, 128, 1, 2, 3, 0};  // alpha is dropped, not blended
  CHECK(values(decode(png(rgba.data(), 2, 1, PNG_FORMAT_RGBA), 3)) == Bytes{200, 100, 50, 1, 2, 3});
  const Bytes grey_alpha{200, 128, 7, 0};
  CHECK(values(decode(png(grey_alpha.data(), 2, 1, PNG_FORMAT_GA), 1)) == Bytes{200, 7});

  const Bytes palette{9, 8, 7, 90, 80, 70}, index{1, 0, 1};
  CHECK(values(decode(png(index.data(), 3, 1, PNG_FORMAT_RGB_COLORMAP, palette.data(), 2), 3)) ==
        Bytes{90, 80, 70, 9, 8, 7, 90, 80, 70});

  const std::uint16_t deep[] = {0x1234, 0xffff, 0x00ff};
  CHECK_ERROR(decode(png(deep, 3, 1, PNG_FORMAT_LINEAR_Y), 1), data, "F", 16);
}

TEST_CASE("image: JPEG, grey and in colour") {
  const int width = 32, height = 24;
  Bytes smooth;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      smooth.push_back(static_cast<std::uint8_t>(40 + 5 * x));
      smooth.push_back(static_cast<std::uint8_t>(30 + 6 * y));
      smooth.push_back(100);
    }
  const Bytes file = jpeg(smooth, width, height);
  const Tensor color = decode(file, 3), grey = decode(file, 1);
  REQUIRE(color.shape() == Shape{height, width, 3});
  REQUIRE(grey.shape() == Shape{height, width, 1});
  int worst = 0;
  for (int i = 0; i < width * height; ++i) {
    const auto* p = &smooth[static_cast<std::size_t>(3 * i)];
    for (int c = 0; c < 3; ++c) worst = std::max(worst, std::abs(p[c] - color.data<std::uint8_t>()[3 * i + c]));
    worst = std::max(worst, std::abs((299 * p[0] + 587 * p[1] + 114 * p[2]) / 1000 - grey.data<std::uint8_t>()[i]));
  }
  CHECK(worst <= 6);
  const Tensor from_grey = decode(jpeg(values(grey), width, height, {.space = JCS_GRAYSCALE}), 3);
  CHECK(from_grey.data<std::uint8_t>()[0] == from_grey.data<std::uint8_t>()[2]);
}

TEST_CASE("image: EXIF's orientation changes no pixel, as in torchvision's ImageFolder") {
  const Bytes plain = jpeg(Bytes(32 * 16 * 3, 90), 32, 16);
  const Bytes turned_by_90{0xff, 0xe1, 0,    34,   'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                           0,    1,    0x01, 0x12, 0,   3,   0,   0,   0, 1, 0,   6,   0, 0,  0, 0, 0, 0};
  Bytes marked = plain;
  marked.insert(marked.begin() + 2, turned_by_90.begin(), turned_by_90.end());
  CHECK(decode(marked, 3).shape() == Shape{16, 32, 3});
  CHECK(values(decode(marked, 3)) == values(decode(plain, 3)));
}

TEST_CASE("image: what cannot be decoded") {
  const Bytes good = png(colors.data(), 3, 2, PNG_FORMAT_RGB);
  Bytes cut = good, damaged = good, huge = good;
  cut.resize(good.size() - 20);
  damaged[good.size() - 20] ^= 1;
  CHECK_ERROR(decode({}, 3), data, "image", "F");
  CHECK_ERROR(decode({'G', 'I', 'F'}, 3), data, "image", "F");
  CHECK_ERROR(decode(good, 4), usage, "image", 4);
  CHECK_ERROR(decode(cut, 3), data, "image", "F");
  CHECK_ERROR(decode(damaged, 3), data, "image", "F");
  CHECK_ERROR(decode(good, 3, 5), data, "F", 3, 2, 5);

  Bytes pixels(64 * 64 * 4, 100);
  const Bytes photo = jpeg(pixels, 64, 64, {.sampling = 2});
  CHECK_ERROR(decode(jpeg(pixels, 64, 64, {.space = JCS_CMYK}), 3), data, "image", "F");
  CHECK_ERROR(decode(Bytes(photo.begin(), photo.end() - 40), 3), data, "image", "F");
  CHECK_ERROR(decode(Bytes(photo.begin(), photo.begin() + 30), 3), data, "image", "F");
  CHECK_ERROR(decode(photo, 3, 4095), data, 64, 4095);
  CHECK_ERROR(read_image("/nowhere/image.png", 1), file, "file", "/nowhere/image.png");
  const Folder folder;
  CHECK(values(read_image(folder.write("a.png", good), 3)) == colors);
}

TEST_CASE("image: resize") {
  const Tensor step = image({1, 4, 1}, {0, 0, 100, 100});
  CHECK(values(resize(step, 1, 4)) == values(step));
  // Growing: PyTorch's bilinear without align_corners. Shrinking: its antialias=True.
  CHECK(values(resize(step, 1, 8)) == Bytes{0, 0, 0, 25, 75, 100, 100, 100});
  CHECK(values(resize(step, 1, 2)) == Bytes{14, 86});
  CHECK(values(resize(image({2, 2, 3}, {0, 10, 20, 100, 110, 120, 0, 10, 20, 100, 110, 120}), 1, 1)) ==
        Bytes{50, 60, 70});
  CHECK(values(resize(image({1, 1, 1}, {77}), 3, 2)) == Bytes(6, 77));
  CHECK_ERROR(resize(step, 0, 2), usage, 0, 2);
  CHECK_ERROR(resize(Tensor{}, 1, 1), usage, "[]", "f32");
  CHECK_ERROR(resize(Tensor::empty({1, 1, 1}), 1, 1), usage, "resize", "f32");
}

TEST_CASE("image: a part of a JPEG is that part of the whole") {
  const int width = 131, height = 97;
  JpegDecoder decoder;
  PixelBlock whole, part;
  for (const int sampling : {1, 2})
    for (const bool progressive : {false, true}) {
      const Bytes file = jpeg(photo(width, height), width, height, {.progressive = progressive, .sampling = sampling});
      const auto bytes = std::as_bytes(std::span(file));
      const auto open = [&] { return decoder.open(bytes, "F", most_pixels); };
      for (const int reduction : {1, 2, 4, 8}) {
        decoder.decode(open(), reduction, 3, whole, "F");
        REQUIRE(whole.width == (width + reduction - 1) / reduction);
        REQUIRE(whole.height == (height + reduction - 1) / reduction);
        for (const Region& wanted : {Region{0, 0, 1, 1},
                                     {16, 16, 32, 32},
                                     {37, 41, 50, 9},
                                     {3, 90, 128, 7},
                                     {64, 33, 64, 64},
                                     {130, 96, 1, 1},
                                     {40, 17, 17, 80},
                                     {100, 48, 31, 3}}) {
          open();
          decoder.decode(wanted, reduction, 3, part, "F");
          const Index left = wanted.left / reduction, top = wanted.top / reduction;
          const Index right = (wanted.left + wanted.width + reduction - 1) / reduction;
          const Index bottom = (wanted.top + wanted.height + reduction - 1) / reduction;
          REQUIRE((part.left <= left && part.top <= top && part.left + part.width >= right &&
                   part.top + part.height >= bottom));
          int different = 0;
          for (Index y = top; y < bottom; ++y)
            for (Index x = 3 * left; x < 3 * right; ++x)
              different += whole.values[static_cast<std::size_t>(y * whole.line() + x)] !=
                           part.values[static_cast<std::size_t>((y - part.top) * part.line() + x - 3 * part.left)];
          INFO("sampling " << sampling << " progressive " << progressive << " 1/" << reduction << " at " << wanted.left
                           << ", " << wanted.top << " of " << wanted.width << " x " << wanted.height);
          CHECK(different == 0);
        }
      }
    }
}

}  // namespace test_image
