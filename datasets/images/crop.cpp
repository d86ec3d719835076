#include "datasets/images/crop.h"

#include <cmath>

#include "datasets/core/random_stream.h"

namespace trireme {
namespace {

constexpr int tries = 10;

double between(double low, double high, std::uint32_t word) { return low + (high - low) * uniform_float(word); }
double whole_below(double n, std::uint32_t word) { return std::min(std::floor(n * uniform_float(word)), n - 1); }

/// The largest centre crop within the ratio.
Crop fallback(double width, double height, const Interval& ratio) {
  Crop crop{0, 0, width, height};
  if (width / height < ratio.low)
    crop.height = std::nearbyint(width / ratio.low);
  else if (width / height > ratio.high)
    crop.width = std::nearbyint(height * ratio.high);
  crop.left = std::floor((width - crop.width) / 2);
  crop.top = std::floor((height - crop.height) / 2);
  return crop;
}

}  // namespace

Crop random_resized_crop(Index width, Index height, const Interval& scale, const Interval& ratio,
                         const std::function<std::array<std::uint32_t, 4>()>& words) {
  const auto w = static_cast<double>(width), h = static_cast<double>(height);
  for (int i = 0; i < tries; ++i) {
    const auto word = words();
    const double area = w * h * between(scale.low, scale.high, word[0]);
    const double sides = std::exp(between(std::log(ratio.low), std::log(ratio.high), word[1]));
    const double wide = std::nearbyint(std::sqrt(area * sides)), high = std::nearbyint(std::sqrt(area / sides));
    if (wide < 1 || high < 1 || wide > w || high > h) continue;
    return {whole_below(w - wide + 1, word[2]), whole_below(h - high + 1, word[3]), wide, high};
  }
  return fallback(w, h, ratio);
}

Crop random_resized_crop(Index width, Index height, const AugmentKey& draw, Index id) {
  const Philox random = random_stream(draw.seed, RandomStream::resized_crop, draw.epoch);
  const auto word = [&](int n) { return random(static_cast<std::uint64_t>(id), static_cast<std::uint64_t>(n)); };
  int drawn = 0;
  Crop crop = random_resized_crop(width, height, crop_scale, crop_ratio, [&] { return word(drawn++); });
  crop.flip = (word(tries)[0] & 1) != 0;
  return crop;
}

Crop central_crop(Index width, Index height, Index size, double central) {
  // torchvision's sizes after resizing: the long side is truncated to a whole number.
  const double side = std::nearbyint(static_cast<double>(size) / central);
  const auto w = static_cast<double>(width), h = static_cast<double>(height), shorter = std::min(w, h);
  const double wide = std::floor(side * w / shorter), high = std::floor(side * h / shorter);
  const double left = std::nearbyint((wide - static_cast<double>(size)) / 2);
  const double top = std::nearbyint((high - static_cast<double>(size)) / 2);
  const auto part = [&](double n, double all, double of) { return n * all / of; };
  const auto n = static_cast<double>(size);
  return {part(left, w, wide), part(top, h, high), part(n, w, wide), part(n, h, high), false, /*bounded=*/false};
}

}  // namespace trireme
