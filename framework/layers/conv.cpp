#include "framework/layers/conv.h"

#include "framework/autograd/step_context.h"
#include "framework/layers/inference_cache.h"

namespace trireme {
namespace {

Extents all(Index n) { return {n, n, n}; }

ConvOptions conv_options(const ConvLayerOptions& o) {
  return {.stride = all(o.stride),
          .pad_begin = all(o.pad),
          .pad_end = all(o.pad),
          .dilation = all(o.dilation),
          .groups = o.groups};
}

}  // namespace

ConvNd::ConvNd(Index in, Index out, const Shape& kernel, ConvOptions o, bool with_bias, Init from)
    : init(std::move(from)), options(o) {
  check(in > 0 && out > 0, "conv", "{} input and {} output channels, expected at least 1 of each", in, out);
  check(kernel.rank() >= 1 && kernel.rank() <= 3, "conv", "kernel {} has {} spatial axes, expected 1 to 3", kernel,
        kernel.rank());
  check(o.groups > 0 && in % o.groups == 0 && out % o.groups == 0, "conv",
        "{} groups do not divide {} input and {} output channels", o.groups, in, out);
  Shape shape{out};
  for (int i = 0; i < kernel.rank(); ++i) {
    check(kernel[i] > 0 && o.stride[i] > 0 && o.dilation[i] > 0 && o.pad_begin[i] >= 0 && o.pad_end[i] >= 0, "conv",
          "axis {} has kernel {}, stride {}, dilation {}, padding {} and {}; the first three are at least 1, "
          "padding at least 0",
          i, kernel[i], o.stride[i], o.dilation[i], o.pad_begin[i], o.pad_end[i]);
    shape.push_back(kernel[i]);
  }
  shape.push_back(in / o.groups);
  weight = init.make(shape);
  if (with_bias) bias = init.of_bias(shape).make({out}, 1);
}

Conv1d::Conv1d(Index in, Index out, Index kernel, ConvLayerOptions o)
    : ConvNd(in, out, {kernel}, conv_options(o), o.bias, o.init) {}
Conv2d::Conv2d(Index in, Index out, Index kernel, ConvLayerOptions o)
    : ConvNd(in, out, {kernel, kernel}, conv_options(o), o.bias, o.init) {}
Conv3d::Conv3d(Index in, Index out, Index kernel, ConvLayerOptions o)
    : ConvNd(in, out, {kernel, kernel, kernel}, conv_options(o), o.bias, o.init) {}

Tensor ConvNd::apply(const Tensor& x, bool relu, ChannelStats* moments) const {
  ConvOptions now = options;
  now.relu = relu;
  if (InferenceCache* frozen = StepContext::current().frozen) frozen->keep(weight), now.filters = &frozen->filters();
  return conv(x, weight, bias, now, {}, moments);
}

}  // namespace trireme
