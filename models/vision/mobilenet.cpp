// MobileNetV2 as torchvision builds and names it.
#include "models/vision/mobilenet.h"

namespace trireme {
namespace {

Conv2d unbiased(Index in, Index out, Index kernel, Index stride = 1, Index groups = 1) {
  return Conv2d(in, out, kernel,
                {.stride = stride, .pad = kernel / 2, .groups = groups, .bias = false, .init = Init::kaiming_normal()});
}
/// torchvision's Conv2dNormActivation.
Sequential conv_norm_relu6(Index in, Index out, Index kernel, Index stride = 1, Index groups = 1) {
  return {unbiased(in, out, kernel, stride, groups), BatchNorm(out), relu6};
}

/// An inverted residual: a widening convolution, a depthwise one, a narrowing one. The input is added if shapes agree.
struct InvertedResidual {
  InvertedResidual(Index in, Index out, Index stride, Index expansion) : adds(stride == 1 && in == out) {
    const Index hidden = in * expansion;
    if (expansion != 1) conv.add(conv_norm_relu6(in, hidden, 1));
    conv.add(conv_norm_relu6(hidden, hidden, 3, stride, hidden)).add(unbiased(hidden, out, 1)).add(BatchNorm(out));
  }
  Tensor operator()(const Tensor& x) const { return adds ? x + conv(x) : conv(x); }
  void visit(const StateVisitor& v) { v("conv", conv); }
  Sequential conv;
  bool adds;
};

}  // namespace

Sequential mobilenet_v2(const ModelOptions& o) {
  check(o.input.rank() == 3, "mobilenet_v2", "a sample is {}, expected [height, width, channels]", o.input);
  struct Stage {
    Index expansion, channels, blocks, stride;
  };
  constexpr Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                              {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  Index channels = 32;
  Sequential features;
  features.add(conv_norm_relu6(o.input[2], channels, 3, 2));
  for (const Stage& s : stages)
    for (Index i = 0; i < s.blocks; ++i) {
      features.add(InvertedResidual(channels, s.channels, i == 0 ? s.stride : 1, s.expansion));
      channels = s.channels;
    }
  features.add(conv_norm_relu6(channels, 1280, 1));
  Sequential net;
  return net.add("features", features)
      .add("avgpool", global_avg_pool)
      .add("classifier", Sequential{Dropout(0.2), Linear(1280, o.classes, {.init = Init::normal(0.01)})});
}

namespace {
const bool mobilenet_added = add_model({"mobilenet_v2", mobilenet_v2, {.input = {224, 224, 3}, .classes = 1000}});
}  // namespace
}  // namespace trireme
