#include "datasets/images/crop.h"

#include <cmath>

#include "datasets/core/random_stream.h"

namespace trireme {
namespace {

constexpr int tries = 10;
constexpr double least_area = 0.08, narrowest = 3.0 / 4, widest = 4.0 / 3;

double between(double low, double high, std::uint32_t word) { return low + (high - low) * uniform_float(word); }
double whole_below(double n, std::uint32_t word) { return std::min(std::floor(n * uniform_float(word)), n - 1); }

/// The widest or highest centre that keeps the ratio.
Crop fallback(double width, double height) {
  Crop crop{0, 0, width, height};
  if (width / height < narrowest)
    crop.height = std::nearbyint(width / narrowest);
  else if (width / height > widest)
    crop.width = std::nearbyint(height * widest);
  crop.left = std::floor((width - crop.width) / 2), crop.top = std::floor((height - crop.height) / 2);
  return crop;
}

}  // namespace

Crop random_resized_crop(Index width, Index height, const AugmentKey& draw, Index id) {
  const Philox random = random_stream(draw.seed, RandomStream::resized_crop, draw.epoch);
  const auto w = static_cast<double>(width), h = static_cast<double>(height);
  const auto word = [&](int n) { return random(static_cast<std::uint64_t>(id), static_cast<std::uint64_t>(n)); };
  Crop crop = fallback(w, h);
  for (int i = 0; i < tries; ++i) {
    const auto words = word(i);
    const double area = w * h * between(least_area, 1, words[0]);
    const double ratio = std::exp(between(std::log(narrowest), std::log(widest), words[1]));
    const double wide = std::nearbyint(std::sqrt(area * ratio)), high = std::nearbyint(std::sqrt(area / ratio));
    if (wide < 1 || high < 1 || wide > w || high > h) continue;
    crop = {whole_below(w - wide + 1, words[2]), whole_below(h - high + 1, words[3]), wide, high};
    break;
  }
  crop.flip = (word(tries)[0] & 1) != 0;
  return crop;
}

Crop central_crop(Index width, Index height, Index size, double central) {
  // The sizes that torchvision makes of the sides: the long one is cut down to a whole number.
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
