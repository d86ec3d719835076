// Images and parameters of a test's cases, at random.
#pragma once
#include "datasets/images/transforms.h"

namespace trireme::test {

/// Random numbers of one case of a test.
inline TransformRandom numbers(Index of_case) { return {AugmentKey{.seed = 77}, of_case, 0}; }
inline Index between(TransformRandom& random, Index low, Index high) { return low + random.below(high - low + 1); }

/// Noise, or levels that change slowly.
inline Image random_image(TransformRandom& random, Index channels = 0, Index most = 20) {
  if (channels == 0) channels = random.chance(0.5) ? 3 : 1;
  Image image{between(random, 5, most), between(random, 5, most), channels, {}};
  const bool smooth = random.chance(0.3);
  const double slope = random.uniform(0, 10), start = random.uniform(0, 100);
  for (Index i = 0; i < image.height * image.width; ++i)
    for (Index c = 0; c < channels; ++c) {
      const double level = start + slope * static_cast<double>(i / image.width + c * (i % image.width)) / 2;
      image.pixels.push_back(static_cast<std::uint8_t>(smooth ? std::min(level, 255.0) : random.uniform(0, 256)));
    }
  return image;
}

}  // namespace trireme::test
