// Crops: the part of an image that a sample shows (torchvision's RandomResizedCrop, Resize and CenterCrop, and a flip).
#pragma once
#include <array>
#include <functional>

#include "datasets/core/dataset.h"

namespace trireme {

/// A rectangle of an image, in pixels with fractions, and a horizontal flip.
struct Crop {
  double left = 0,      ///< left edge, in pixels
      top = 0,          ///< top edge, in pixels
      width = 0,        ///< in pixels
      height = 0;       ///< in pixels
  bool flip = false;    ///< mirror horizontally
  bool bounded = true;  ///< true: cut before resizing, so that pixels outside have no effect; false: cut after resizing
};

/// The closed interval [low, high].
struct Interval {
  double low = 0,  ///< lower end
      high = 0;    ///< upper end
};
/// Default ranges of random_resized_crop(), as in torchvision.
inline constexpr Interval crop_scale{0.08, 1},  ///< area, as a share of the image's area
    crop_ratio{3.0 / 4, 4.0 / 3};               ///< width / height

/// A random crop in whole pixels: its area is drawn from scale and its aspect ratio from ratio. After ten tries that do
/// not fit, the centre. words: returns four random numbers per call.
Crop random_resized_crop(Index width, Index height, const Interval& scale, const Interval& ratio,
                         const std::function<std::array<std::uint32_t, 4>()>& words);
/// As above with the default ranges, and flipped with probability 1/2: a function of (draw.seed, draw.epoch, id) and
/// the image's size.
Crop random_resized_crop(Index width, Index height, const AugmentKey& draw, Index id);
/// The square crop that equals the size x size centre after the short side is resized to round(size / central).
Crop central_crop(Index width, Index height, Index size, double central);

}  // namespace trireme
