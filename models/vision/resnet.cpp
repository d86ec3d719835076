// Residual networks (He et al. 2015, arXiv 1512.03385) with torchvision's shapes and names. The stride of a bottleneck
// is in its 3 x 3 convolution.
#include "models/vision/resnet.h"

#include <array>

#include "framework/layers/recompute.h"

namespace trireme {
namespace {

Conv2d plain(Index in, Index out, Index kernel, Index stride) {
  return Conv2d(in, out, kernel, {.stride = stride, .pad = kernel / 2, .bias = false, .init = Init::kaiming_normal()});
}
const BatchNormOptions with_relu{.relu = true};

/// The last batch norm of a block.
BatchNorm last_norm(Index channels, const ModelOptions& o) {
  return BatchNorm(channels, with_relu, o.zero_gamma ? Init::zeros() : Init::ones());
}

/// The shortcut of a block: its input, projected if the block changes the shape.
Sequential shortcut(Index in, Index out, Index stride) {
  if (in == out && stride == 1) return {};
  return {plain(in, out, 1, stride), BatchNorm(out)};
}

struct BasicBlock {
  static constexpr Index expansion = 1;
  BasicBlock(Index in, Index width, Index stride, const ModelOptions& o)
      : conv1(plain(in, width, 3, stride)),
        bn1(width, with_relu),
        conv2(plain(width, width, 3, 1)),
        bn2(last_norm(width, o)),
        downsample(shortcut(in, width, stride)) {}
  Tensor operator()(Tensor x) const {
    const Tensor inner = conv_norm(conv1, bn1, x);
    return conv_norm(conv2, bn2, inner, downsample(std::move(x)));
  }
  void visit(const StateVisitor& v) {
    v("conv1", conv1);
    v("bn1", bn1);
    v("conv2", conv2);
    v("bn2", bn2);
    v("downsample", downsample);
  }
  Conv2d conv1;
  BatchNorm bn1;
  Conv2d conv2;
  BatchNorm bn2;
  Sequential downsample;
};

struct Bottleneck {
  static constexpr Index expansion = 4;
  Bottleneck(Index in, Index width, Index stride, const ModelOptions& o)
      : conv1(plain(in, width, 1, 1)),
        bn1(width, with_relu),
        conv2(plain(width, width, 3, stride)),
        bn2(width, with_relu),
        conv3(plain(width, width * expansion, 1, 1)),
        bn3(last_norm(width * expansion, o)),
        downsample(shortcut(in, width * expansion, stride)) {}
  Tensor operator()(Tensor x) const {
    const Tensor inner = conv_norm(conv2, bn2, conv_norm(conv1, bn1, x));
    return conv_norm(conv3, bn3, inner, downsample(std::move(x)));
  }
  void visit(const StateVisitor& v) {
    v("conv1", conv1);
    v("bn1", bn1);
    v("conv2", conv2);
    v("bn2", bn2);
    v("conv3", conv3);
    v("bn3", bn3);
    v("downsample", downsample);
  }
  Conv2d conv1;
  BatchNorm bn1;
  Conv2d conv2;
  BatchNorm bn2;
  Conv2d conv3;
  BatchNorm bn3;
  Sequential downsample;
};

template <class Block>
Sequential stage(Index& channels, Index width, Index blocks, Index stride, const ModelOptions& o) {
  Sequential all;
  for (Index i = 0; i < blocks; ++i) {
    Module block = Block(channels, width, i == 0 ? stride : 1, o);
    all.add(o.recompute ? Module(Recompute(std::move(block))) : std::move(block));
    channels = width * Block::expansion;
  }
  return all;
}

template <class Block>
Sequential resnet(const std::array<Index, 4>& blocks, const ModelOptions& o) {
  check(o.input.rank() == 3, "resnet", "a sample is {}, expected [height, width, channels]", o.input);
  Index channels = 64;
  Sequential net;
  net.add("conv1", plain(o.input[2], channels, 7, 2))
      .add("bn1", BatchNorm(channels))
      .add("relu", relu)
      .add("maxpool", MaxPool(3, {.stride = 2, .pad = 1}));
  for (std::size_t i = 0; i < 4; ++i)
    net.add("layer" + std::to_string(i + 1), stage<Block>(channels, Index{64} << i, blocks[i], i == 0 ? 1 : 2, o));
  return net.add("avgpool", global_avg_pool).add("flatten", flatten).add("fc", Linear(channels, o.classes));
}

}  // namespace

Sequential resnet18(const ModelOptions& o) { return resnet<BasicBlock>({2, 2, 2, 2}, o); }
Sequential resnet34(const ModelOptions& o) { return resnet<BasicBlock>({3, 4, 6, 3}, o); }
Sequential resnet50(const ModelOptions& o) { return resnet<Bottleneck>({3, 4, 6, 3}, o); }
Sequential resnet101(const ModelOptions& o) { return resnet<Bottleneck>({3, 4, 23, 3}, o); }
Sequential resnet152(const ModelOptions& o) { return resnet<Bottleneck>({3, 8, 36, 3}, o); }

Sequential cifar_resnet(Index depth, const ModelOptions& o) {
  check(depth >= 8 && depth % 6 == 2, "cifar_resnet", "depth is {}, expected 6n + 2: 20, 32, 44, 56, 110", depth);
  check(o.input.rank() == 3, "cifar_resnet", "a sample is {}, expected [height, width, channels]", o.input);
  Index channels = 16;
  Sequential net;
  net.add("conv1", plain(o.input[2], channels, 3, 1)).add("bn1", BatchNorm(channels)).add("relu", relu);
  for (Index i = 0; i < 3; ++i)
    net.add("layer" + std::to_string(i + 1),
            stage<BasicBlock>(channels, Index{16} << i, (depth - 2) / 6, i == 0 ? 1 : 2, o));
  return net.add("avgpool", global_avg_pool).add("flatten", flatten).add("fc", Linear(channels, o.classes));
}

namespace {
const ModelOptions cifar{.input = {32, 32, 3}}, imagenet{.input = {224, 224, 3}, .classes = 1000};
const bool resnet_added = add_model({"resnet20", [](const ModelOptions& o) { return cifar_resnet(20, o); }, cifar}) &&
                          add_model({"resnet32", [](const ModelOptions& o) { return cifar_resnet(32, o); }, cifar}) &&
                          add_model({"resnet56", [](const ModelOptions& o) { return cifar_resnet(56, o); }, cifar}) &&
                          add_model({"resnet18", resnet18, imagenet}) && add_model({"resnet34", resnet34, imagenet}) &&
                          add_model({"resnet50", resnet50, imagenet}) &&
                          add_model({"resnet101", resnet101, imagenet}) &&
                          add_model({"resnet152", resnet152, imagenet});
}  // namespace
}  // namespace trireme
