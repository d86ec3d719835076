#include "models/volumes/unet3d.h"

#include "models/vision/unet.h"

namespace trireme {

Sequential unet3d(const ModelOptions& o, Index width) {
  check(o.input.rank() == 4, "unet3d", "a sample is {}, expected [depth, height, width, channels]", o.input);
  check(width >= 1, "unet3d", "width {}, expected at least 1", width);
  for (int d = 0; d < 3; ++d)
    check(o.input[d] > 0 && o.input[d] % 16 == 0, "unet3d",
          "a sample is {}, expected extents that are multiples of 16, because they are halved four times", o.input);
  return unet(o, width);
}

namespace {
/// arch.width: the width; 0: 32.
Module unet3d_of(const ModelOptions& o) {
  ArchOptions known;
  known.width = o.arch.width;
  check(o.arch == known, "unet3d", "takes the setting arch.width (channels of the first level) alone");
  return o.arch.width > 0 ? unet3d(o, o.arch.width) : unet3d(o);
}
const bool unet3d_added = add_model({.name = "unet3d",
                                     .make = unet3d_of,
                                     .usual = {.input = {64, 64, 64, 1}, .classes = 2},
                                     .sized = true,
                                     .dense = true});
}  // namespace

}  // namespace trireme
