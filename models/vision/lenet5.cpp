#include "models/vision/lenet5.h"

namespace trireme {

Sequential lenet5(const ModelOptions& o) {
  check(o.input.rank() == 3, "lenet5", "a sample is {}, expected [height, width, channels]", o.input);
  const Index height = (o.input[0] / 2 - 4) / 2, width = (o.input[1] / 2 - 4) / 2;
  check(height > 0 && width > 0, "lenet5", "samples of {} are too small, expected at least 12 x 12", o.input);
  return {Conv2d(o.input[2], 6, 5, {.pad = 2}),
          relu,
          MaxPool(2),
          Conv2d(6, 16, 5),
          relu,
          MaxPool(2),
          flatten,
          Linear(16 * height * width, 120),
          relu,
          Linear(120, 84),
          relu,
          Linear(84, o.classes)};
}

namespace {
const bool lenet5_added = add_model({"lenet5", lenet5});
}
}  // namespace trireme
