// Which part of an image a sample shows: torchvision's RandomResizedCrop, Resize and CenterCrop, and a flip.
#pragma once
#include <array>
#include <functional>

#include "datasets/core/dataset.h"

namespace trireme {

/// A rectangle of an image in pixels, which may begin and end inside one, and whether it is mirrored.
struct Crop {
  double left = 0, top = 0, width = 0, height = 0;
  bool flip = false;
  bool bounded = true;  ///< cut out before it is resized, so that nothing outside it shows; else after
};

/// Numbers from low to high, both included.
struct Interval {
  double low = 0, high = 0;
};
/// What random_resized_crop() cuts out by default, as torchvision's.
inline constexpr Interval crop_scale{0.08, 1},  ///< area, as a share of the image's
    crop_ratio{3.0 / 4, 4.0 / 3};               ///< width / height

/// An area and sides drawn from these, in whole pixels; after ten that do not fit, the centre. words: four random
/// numbers a call.
Crop random_resized_crop(Index width, Index height, const Interval& scale, const Interval& ratio,
                         const std::function<std::array<std::uint32_t, 4>()>& words);
/// The same by the defaults, and mirrored half of the time: a function of (draw.seed, draw.epoch, id) and the image's
/// size.
Crop random_resized_crop(Index width, Index height, const AugmentKey& draw, Index id);
/// The square that is the size x size centre once the short side is resized to round(size / central).
Crop central_crop(Index width, Index height, Index size, double central);

}  // namespace trireme
