// VGG-16 and AlexNet as torchvision builds and names them.
#include "models/vision/vgg.h"

namespace trireme {
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
      .add("avgpool", AdaptiveAvgPool({7, 7}))
      .add("flatten", flatten)
      .add("classifier", Sequential{linear(512 * 7 * 7, 4096), relu, Dropout(0.5), linear(4096, 4096), relu,
                                    Dropout(0.5), linear(4096, o.classes)});
}

Sequential alexnet(const ModelOptions& o) {
  check(o.input.rank() == 3, "alexnet", "a sample is {}, expected [height, width, channels]", o.input);
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
      .add("avgpool", AdaptiveAvgPool({6, 6}))
      .add("flatten", flatten)
      .add("classifier", Sequential{Dropout(0.5), Linear(256 * 6 * 6, 4096), relu, Dropout(0.5), Linear(4096, 4096),
                                    relu, Linear(4096, o.classes)});
}

namespace {
const ModelOptions vgg_imagenet{.input = {224, 224, 3}, .classes = 1000};
const bool vgg_added = add_model({"vgg16", vgg16, vgg_imagenet}) && add_model({"alexnet", alexnet, vgg_imagenet});
}  // namespace
}  // namespace trireme
