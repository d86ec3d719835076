#include "datasets/images/functional.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "datasets/images/resize.h"

namespace trireme {
namespace {

Image black(Index height, Index width, Index channels) {
  return {height, width, channels, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * channels))};
}
void check_size(std::string_view op, Index height, Index width) {
  check(height > 0 && width > 0, op, "the new size is {} x {}, both must be at least 1", height, width);
}
void check_colours(std::string_view op, const Image& image) {
  check_image(op, image);
  check(image.channels == 1 || image.channels == 3, op, "the image has {} channels, expected 1 (grey) or 3 (RGB)",
        image.channels);
}

/// The indices first, first + 1, ...; some may be outside of the image.
std::vector<Index> from(Index first, Index count) {
  std::vector<Index> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// Row y and column x of the result are rows[y] and columns[x] of the image. Indices outside of the image give `fill`
/// in all channels.
Image gather(const Image& image, const std::vector<Index>& rows, const std::vector<Index>& columns,
             std::uint8_t fill = 0) {
  Image result = black(std::ssize(rows), std::ssize(columns), image.channels);
  // Columns [first, last) are contiguous in the image: most of a crop, or none.
  const Index count = std::ssize(columns), width = image.width, height = image.height;
  const Index* places = columns.data();
  Index first = 0;
  while (first < count && (places[first] < 0 || places[first] >= width)) ++first;
  Index last = std::min(first + 1, count);
  while (last < count && places[last] < width && places[last] == places[last - 1] + 1) ++last;
  const auto copy = [&](auto channels) {  // a compile-time constant for usual numbers of channels
    const auto pixels = [=](std::uint8_t* to, const std::uint8_t* line, Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index x = places[i];
        const bool inside = line && x >= 0 && x < width;
        for (Index c = 0; c < channels; ++c) to[i * channels + c] = inside ? line[x * channels + c] : fill;
      }
    };
    std::uint8_t* to = result.pixels.data();
    for (const Index y : rows) {
      const std::uint8_t* line = y >= 0 && y < height ? image.pixels.data() + y * width * channels : nullptr;
      pixels(to, line, 0, first);
      pixels(to, line, last, count);
      if (line && last > first)
        std::copy_n(line + places[first] * channels, (last - first) * channels, to + first * channels);
      else
        pixels(to, line, first, last);
      to += count * channels;
    }
  };
  if (image.channels == 3)
    copy(std::integral_constant<Index, 3>{});
  else
    copy(image.channels);
  return result;
}

std::uint8_t truncated(float level) { return static_cast<std::uint8_t>(std::clamp(level, 0.0f, 255.0f)); }
std::uint8_t rounded(float level) { return truncated(level + 0.5f); }
std::uint8_t grey(const std::uint8_t* p, Index channels) {  // PIL's formula
  return channels == 1 ? *p : static_cast<std::uint8_t>((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16);
}

/// factor * level + (1 - factor) * other, truncated as in torchvision and PIL.
struct Blend {
  Blend(std::string_view op, double f) : factor(static_cast<float>(f)), rest(static_cast<float>(1 - f)) {
    check(f >= 0 && std::isfinite(factor), op, "the factor is {}, it must be at least 0", f);
  }
  std::uint8_t operator()(float level, float other) const { return truncated(factor * level + rest * other); }
  /// Blends all levels with the same `other`.
  void all(Image& image, float other) const {
    std::array<std::uint8_t, 256> table{};
    for (std::size_t level = 0; level < table.size(); ++level) table[level] = (*this)(static_cast<float>(level), other);
    for (std::uint8_t& level : image.pixels) level = table[level];
  }
  float factor, rest;
};

}  // namespace

void check_image(std::string_view op, const Image& image) {
  check(image.height > 0 && image.width > 0 && image.channels > 0 &&
            std::ssize(image.pixels) == image.height * image.width * image.channels,
        op, "an image of {} x {} x {} has {} bytes of pixels", image.height, image.width, image.channels,
        image.pixels.size());
}

Image resized_crop(Image image, const Crop& part, Index height, Index width) {
  check_image("resized_crop", image);
  check_size("resized_crop", height, width);
  const auto lies = [](double first, double extent, Index in) {  // up to rounding
    return first >= 0 && extent > 0 && first + extent <= static_cast<double>(in) * (1 + 1e-9);
  };
  check(lies(part.left, part.width, image.width) && lies(part.top, part.height, image.height), "resized_crop",
        "{} x {} pixels from ({}, {}) on do not lie in an image of {} x {}", part.height, part.width, part.top,
        part.left, image.height, image.width);
  PixelBlock block{
      .width = image.width, .height = image.height, .channels = image.channels, .values = std::move(image.pixels)};
  Image result = black(height, width, image.channels);
  Resizer()(block, part, height, width, result.pixels.data());
  return result;
}
Image resize(Image image, Index height, Index width) {
  check_image("resize", image);
  check_size("resize", height, width);
  if (image.height == height && image.width == width) return image;
  const Crop all{.width = static_cast<double>(image.width), .height = static_cast<double>(image.height)};
  return resized_crop(std::move(image), all, height, width);
}

Image crop(const Image& image, Index top, Index left, Index height, Index width) {
  check_image("crop", image);
  check_size("crop", height, width);
  return gather(image, from(top, height), from(left, width));
}
Image center_crop(const Image& image, Index height, Index width) {
  // Half of the difference by Python's round(). Where pixels are added, one less before than after.
  const auto first = [](Index has, Index wanted) {
    return wanted > has ? -((wanted - has) / 2) : static_cast<Index>(std::nearbyint((has - wanted) / 2.0));
  };
  return crop(image, first(image.height, height), first(image.width, width), height, width);
}

Image pad(const Image& image, const Padding& by, PaddingMode mode, std::uint8_t fill) {
  check_image("pad", image);
  check(std::min({by.left, by.top, by.right, by.bottom}) >= 0, "pad",
        "{}, {}, {} and {} pixels are to be added, expected at least 0", by.left, by.top, by.right, by.bottom);
  const auto places = [&](Index before, Index count, Index behind) {
    const Index mirror = mode == PaddingMode::reflect ? 1 : 0, most = count - mirror;
    check(mode == PaddingMode::constant || mode == PaddingMode::edge || std::max(before, behind) <= most, "pad",
          "{} pixels are to be added beside {}, of which a mirror shows {}", std::max(before, behind), count, most);
    std::vector<Index> all = from(-before, before + count + behind);
    for (Index& i : all) {
      if (mode == PaddingMode::edge) i = std::clamp<Index>(i, 0, count - 1);
      if (mode == PaddingMode::reflect || mode == PaddingMode::symmetric)
        i = i < 0 ? mirror - 1 - i : i >= count ? 2 * count - 1 - mirror - i : i;
    }
    return all;
  };
  return gather(image, places(by.top, image.height, by.bottom), places(by.left, image.width, by.right), fill);
}

Image hflip(const Image& image) {
  check_image("hflip", image);
  std::vector<Index> columns = from(0, image.width);
  std::reverse(columns.begin(), columns.end());
  return gather(image, from(0, image.height), columns);
}
Image vflip(const Image& image) {
  check_image("vflip", image);
  std::vector<Index> rows = from(0, image.height);
  std::reverse(rows.begin(), rows.end());
  return gather(image, rows, from(0, image.width));
}

Image rotate(const Image& image, double degrees) {
  check_image("rotate", image);
  check(std::isfinite(degrees), "rotate", "the angle is {}", degrees);
  const double angle = degrees * std::numbers::pi / 180, cosine = std::cos(angle), sine = std::sin(angle);
  const double middle_x = static_cast<double>(image.width - 1) / 2,
               middle_y = static_cast<double>(image.height - 1) / 2;
  const std::vector<std::uint8_t> nothing(static_cast<std::size_t>(image.channels));
  const auto at = [&](Index row, Index column) {
    const bool inside = row >= 0 && row < image.height && column >= 0 && column < image.width;
    return inside ? image.pixels.data() + (row * image.width + column) * image.channels : nothing.data();
  };
  Image result = black(image.height, image.width, image.channels);
  std::uint8_t* to = result.pixels.data();
  for (Index y = 0; y < image.height; ++y)
    for (Index x = 0; x < image.width; ++x, to += image.channels) {
      const double right = static_cast<double>(x) - middle_x, down = static_cast<double>(y) - middle_y;
      const double from_x = cosine * right - sine * down + middle_x, from_y = sine * right + cosine * down + middle_y;
      const auto left = static_cast<Index>(std::floor(from_x)), top = static_cast<Index>(std::floor(from_y));
      const auto across = static_cast<float>(from_x - static_cast<double>(left));
      const auto along = static_cast<float>(from_y - static_cast<double>(top));
      const std::uint8_t *a = at(top, left), *b = at(top, left + 1), *c = at(top + 1, left), *d = at(top + 1, left + 1);
      for (Index k = 0; k < image.channels; ++k)
        to[k] = rounded((1 - along) * ((1 - across) * a[k] + across * b[k]) +
                        along * ((1 - across) * c[k] + across * d[k]));
    }
  return result;
}

Image to_grayscale(const Image& image, Index channels) {
  check_colours("to_grayscale", image);
  check(channels == 1 || channels == 3, "to_grayscale", "channels is {}, it must be 1 or 3", channels);
  Image result = black(image.height, image.width, channels);
  for (Index i = 0; i < image.height * image.width; ++i) {
    const std::uint8_t level = grey(image.pixels.data() + i * image.channels, image.channels);
    std::fill_n(result.pixels.data() + i * channels, channels, level);
  }
  return result;
}

Image adjust_brightness(Image image, double factor) {
  check_image("adjust_brightness", image);
  Blend("adjust_brightness", factor).all(image, 0);
  return image;
}
Image adjust_contrast(Image image, double factor) {
  check_colours("adjust_contrast", image);
  std::int64_t sum = 0;
  const Index pixels = image.height * image.width;
  for (Index i = 0; i < pixels; ++i) sum += grey(image.pixels.data() + i * image.channels, image.channels);
  const auto mean = static_cast<float>(static_cast<double>(sum) / static_cast<double>(pixels));
  Blend("adjust_contrast", factor).all(image, mean);
  return image;
}
Image adjust_saturation(Image image, double factor) {
  check_colours("adjust_saturation", image);
  const Blend blend("adjust_saturation", factor);
  for (std::uint8_t* p = image.pixels.data(); image.channels == 3 && p != image.pixels.data() + image.pixels.size();
       p += 3) {
    const std::uint8_t other = grey(p, 3);
    for (int c = 0; c < 3; ++c) p[c] = blend(p[c], other);
  }
  return image;
}
Image adjust_hue(Image image, double by) {
  check_colours("adjust_hue", image);
  check(std::abs(by) <= 0.5, "adjust_hue", "{} is to be added to the hue, it must lie in [-0.5, 0.5]", by);
  if (image.channels == 1) return image;
  for (std::uint8_t *p = image.pixels.data(), *end = p + image.pixels.size(); p != end; p += 3) {
    const float r = p[0], g = p[1], b = p[2], most = std::max({r, g, b}), least = std::min({r, g, b});
    if (most == least) continue;  // grey has no hue
    const float range = most - least;
    float sixths = r == most ? (g - b) / range : g == most ? 2 + (b - r) / range : 4 + (r - g) / range;
    sixths += 6 * static_cast<float>(by);
    sixths -= 6 * std::floor(sixths / 6);
    const int sector = static_cast<int>(sixths) % 6;
    const float beyond = sixths - std::floor(sixths);
    const std::uint8_t v = rounded(most), l = rounded(least), falls = rounded(most - range * beyond),
                       rises = rounded(least + range * beyond);
    const std::uint8_t colours[6][3] = {{v, rises, l}, {falls, v, l}, {l, v, rises},
                                        {l, falls, v}, {rises, l, v}, {v, l, falls}};
    std::copy_n(colours[sector], 3, p);
  }
  return image;
}

Image gaussian_blur(const Image& image, Index kernel_size, double sigma) {
  check_image("gaussian_blur", image);
  check(kernel_size > 0 && kernel_size % 2 == 1 && kernel_size / 2 < std::min(image.height, image.width),
        "gaussian_blur", "kernel_size is {}, it must be odd, and half of it less than the sides of {} x {}",
        kernel_size, image.height, image.width);
  check(sigma > 0 && std::isfinite(sigma), "gaussian_blur", "sigma is {}, it must be above 0", sigma);
  std::vector<float> weights;
  double sum = 0;
  const Index half = kernel_size / 2;
  const auto weight = [&](Index i) { return std::exp(-0.5 * std::pow(static_cast<double>(i - half) / sigma, 2)); };
  for (Index i = 0; i < kernel_size; ++i) sum += weight(i);
  for (Index i = 0; i < kernel_size; ++i) weights.push_back(static_cast<float>(weight(i) / sum));
  const Image wide = pad(image, half, PaddingMode::reflect);
  const Index line = wide.width * wide.channels, values = image.width * image.channels;
  std::vector<float> mixed(static_cast<std::size_t>(line));
  Image result = black(image.height, image.width, image.channels);
  for (Index y = 0; y < image.height; ++y) {
    std::fill(mixed.begin(), mixed.end(), 0.0f);
    for (Index k = 0; k < kernel_size; ++k)
      for (Index i = 0; i < line; ++i)
        mixed[static_cast<std::size_t>(i)] +=
            weights[static_cast<std::size_t>(k)] * wide.pixels[static_cast<std::size_t>((y + k) * line + i)];
    for (Index i = 0; i < values; ++i) {
      float level = 0;
      for (Index k = 0; k < kernel_size; ++k)
        level += weights[static_cast<std::size_t>(k)] * mixed[static_cast<std::size_t>(i + k * image.channels)];
      result.pixels[static_cast<std::size_t>(y * values + i)] = rounded(level);
    }
  }
  return result;
}

Image erase(Image image, Index top, Index left, Index height, Index width, const std::vector<std::uint8_t>& value) {
  check_image("erase", image);
  check(value.size() == 1 || std::ssize(value) == image.channels, "erase", "{} levels for {} channels", value.size(),
        image.channels);
  check(
      top >= 0 && left >= 0 && height >= 0 && width >= 0 && top + height <= image.height && left + width <= image.width,
      "erase", "{} x {} pixels from ({}, {}) on do not lie in an image of {} x {}", height, width, top, left,
      image.height, image.width);
  for (Index y = top; y < top + height; ++y)
    for (Index x = left; x < left + width; ++x)
      for (Index c = 0; c < image.channels; ++c)
        image.pixels[static_cast<std::size_t>((y * image.width + x) * image.channels + c)] =
            value[value.size() == 1 ? 0 : static_cast<std::size_t>(c)];
  return image;
}

}  // namespace trireme
