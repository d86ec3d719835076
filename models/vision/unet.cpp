// U-Net as a sequence of layers. Skip connections may cross a cut into pipeline stages.
#include "models/vision/unet.h"

namespace trireme {
namespace {

/// The layers for 2 or 3 spatial axes.
struct Dimensions {
  int axes;
  Module conv(Index in, Index out, Index kernel, bool bias) const {
    const ConvLayerOptions o{.pad = kernel / 2, .bias = bias};
    return axes == 2 ? Module(Conv2d(in, out, kernel, o)) : Module(Conv3d(in, out, kernel, o));
  }
  Module up(Index in, Index out) const {
    const ConvTransposeLayerOptions o{.stride = 2};
    return axes == 2 ? Module(ConvTranspose2d(in, out, 2, o)) : Module(ConvTranspose3d(in, out, 2, o));
  }
  /// Two convolutions, each with a batch norm and a ReLU.
  Sequential block(Index in, Index out, const std::string& name) const {
    Sequential all;
    return all.add(name + "conv1", conv(in, out, 3, false))
        .add(name + "norm1", BatchNorm(out))
        .add(name + "relu1", relu)
        .add(name + "conv2", conv(out, out, 3, false))
        .add(name + "norm2", BatchNorm(out))
        .add(name + "relu2", relu);
  }
};

}  // namespace

Sequential unet(const ModelOptions& o, Index width) {
  check(o.input.rank() == 3 || o.input.rank() == 4, "unet",
        "a sample is {}, expected [height, width, channels] or [depth, height, width, channels]", o.input);
  const Dimensions d{o.input.rank() - 1};
  Sequential net;
  Index channels = o.input[-1];
  for (Index level = 1; level <= 4; ++level, channels = width << (level - 2)) {
    const std::string n = std::to_string(level);
    net.add("encoder" + n, d.block(channels, width << (level - 1), "enc" + n))
        .add("stash" + n, Stash{"enc" + n})
        .add("pool" + n, MaxPool(2));
  }
  net.add("bottleneck", d.block(width * 8, width * 16, "bottleneck"));
  for (Index level = 4; level >= 1; --level) {
    const std::string n = std::to_string(level);
    const Index out = width << (level - 1);
    net.add("upconv" + n, d.up(2 * out, out))
        .add("concat" + n, ConcatStashed("enc" + n))
        .add("decoder" + n, d.block(2 * out, out, "dec" + n));
  }
  return net.add("conv", d.conv(width, o.classes, 1, true));
}

}  // namespace trireme
