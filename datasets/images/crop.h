// Which part of an image a sample shows: torchvision's RandomResizedCrop, Resize and CenterCrop, and a flip.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// A rectangle of an image in pixels, which may begin and end inside one, and whether it is mirrored.
struct Crop {
  double left = 0, top = 0, width = 0, height = 0;
  bool flip = false;
  bool bounded = true;  ///< cut out before it is resized, so that nothing outside it shows; else after
};

/// An area of 8 to 100 % of the image and sides of 3:4 to 4:3, whole pixels; after ten that do not fit, the centre.
/// A function of (draw.seed, draw.epoch, id) and the image's size.
Crop random_resized_crop(Index width, Index height, const AugmentKey&, Index id);
/// The square that is the size x size centre once the short side is resized to round(size / central).
Crop central_crop(Index width, Index height, Index size, double central);

}  // namespace trireme
