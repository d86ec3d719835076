// VGG-16 and AlexNet as torchvision builds and names them.
#include "models/vision/vgg.h"

namespace trireme {
namespace {

/// torchvision's adaptive average pooling to [side, side], where that is a pooling by whole windows.
Module pool_to(Index side, Index height, Index width, const char* model, const ModelOptions& o) {
  check(height == width && height > 0 && height % side == 0, model,
        "samples of {} leave {} x {} before the classifier, expected {} x {} or a multiple: use images of 224 x 224",
        o.input, height, width, side, side);
  if (height == side) return [](const Tensor& x) { return x; };
  return AvgPool(height / side);
}

}  // namespace

Sequential vgg16(const ModelOptions& o) {
  check(o.input.rank() == 3, "vgg16", "a sample is {}, expected [height, width, channels]", o.input);
  Sequential features;
  Index channels = o.input[2];
  for (Index width : {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
    if (width == 0) {
      features.add(MaxPool(2));
      continue;
    }
    features.add(Conv2d(channels, width, 3, {.pad = 1, .init = Init::kaiming_normal()})).add(relu);
    channels = width;
  }
  const auto linear = [](Index in, Index out) { return Linear(in, out, {.init = Init::normal(0.01)}); };
  Sequential net;
  return net.add("features", features)
      .add("avgpool", pool_to(7, o.input[0] / 32, o.input[1] / 32, "vgg16", o))
      .add("flatten", flatten)
      .add("classifier", Sequential{linear(512 * 7 * 7, 4096), relu, Dropout(0.5), linear(4096, 4096), relu,
                                    Dropout(0.5), linear(4096, o.classes)});
}

Sequential alexnet(const ModelOptions& o) {
  check(o.input.rank() == 3, "alexnet", "a sample is {}, expected [height, width, channels]", o.input);
  const auto left = [](Index n) {  // after the strides of 4, 2, 2 and 2
    n = (n + 4 - 11) / 4 + 1;
    for (int i = 0; i < 3; ++i) n = (n - 3) / 2 + 1;
    return n;
  };
  Sequential features{Conv2d(o.input[2], 64, 11, {.stride = 4, .pad = 2}),
                      relu,
                      MaxPool(3, {.stride = 2}),
                      Conv2d(64, 192, 5, {.pad = 2}),
                      relu,
                      MaxPool(3, {.stride = 2}),
                      Conv2d(192, 384, 3, {.pad = 1}),
                      relu,
                      Conv2d(384, 256, 3, {.pad = 1}),
                      relu,
                      Conv2d(256, 256, 3, {.pad = 1}),
                      relu,
                      MaxPool(3, {.stride = 2})};
  Sequential net;
  return net.add("features", features)
      .add("avgpool", pool_to(6, left(o.input[0]), left(o.input[1]), "alexnet", o))
      .add("flatten", flatten)
      .add("classifier", Sequential{Dropout(0.5), Linear(256 * 6 * 6, 4096), relu, Dropout(0.5), Linear(4096, 4096),
                                    relu, Linear(4096, o.classes)});
}

namespace {
const ModelOptions imagenet{.input = {224, 224, 3}, .classes = 1000};
const bool added = add_model({"vgg16", vgg16, imagenet}) && add_model({"alexnet", alexnet, imagenet});
}  // namespace
}  // namespace trireme
