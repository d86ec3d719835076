#include "models/vision/mnist_cnn.h"

namespace trireme {

Sequential mnist_cnn(const ModelOptions& o) {
  check(o.input.rank() == 3, "mnist_cnn", "a sample is {}, expected [height, width, channels]", o.input);
  const Index height = (o.input[0] - 4) / 2, width = (o.input[1] - 4) / 2;
  check(height > 0 && width > 0, "mnist_cnn", "samples of {} are too small, expected at least 6 x 6", o.input);
  return {Conv2d(o.input[2], 32, 3),
          relu,
          Conv2d(32, 64, 3),
          relu,
          MaxPool(2),
          Dropout(0.25),
          flatten,
          Linear(64 * height * width, 128),
          relu,
          Dropout(0.5),
          Linear(128, o.classes)};
}

namespace {
const bool mnist_cnn_added = add_model({"mnist_cnn", mnist_cnn});
}
}  // namespace trireme
