#include "framework/layers/conv.h"

#include "framework/autograd/step_context.h"
#include "framework/layers/inference_cache.h"

namespace trireme {
namespace {

Shape kernel_shape(int axes, const PerAxis& kernel) {
  const Extents& k = kernel.of(axes, "conv");
  return Shape(std::span(k).first(static_cast<std::size_t>(axes)));
}
ConvOptions conv_options(int axes, const PerAxis& kernel, const ConvLayerOptions& o) {
  ConvOptions all{.stride = o.stride.of(axes, "conv"), .dilation = o.dilation.of(axes, "conv"), .groups = o.groups};
  o.pad.apply(all, kernel.of(axes, "conv"), axes, "conv");
  return all;
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

Conv1d::Conv1d(Index in, Index out, PerAxis kernel, ConvLayerOptions o)
    : ConvNd(in, out, kernel_shape(1, kernel), conv_options(1, kernel, o), o.bias, o.init) {}
Conv2d::Conv2d(Index in, Index out, PerAxis kernel, ConvLayerOptions o)
    : ConvNd(in, out, kernel_shape(2, kernel), conv_options(2, kernel, o), o.bias, o.init) {}
Conv3d::Conv3d(Index in, Index out, PerAxis kernel, ConvLayerOptions o)
    : ConvNd(in, out, kernel_shape(3, kernel), conv_options(3, kernel, o), o.bias, o.init) {}

ConvTransposeNd::ConvTransposeNd(int axes, Index in, Index out, PerAxis kernel, const ConvTransposeLayerOptions& o)
    : init(o.init), output_pad(o.output_pad.of(axes, "conv_transpose")) {
  const char* op = "conv_transpose";
  check(in > 0 && out > 0, op, "{} input and {} output channels, expected at least 1 of each", in, out);
  check(o.groups > 0 && in % o.groups == 0 && out % o.groups == 0, op,
        "{} groups do not divide {} input and {} output channels", o.groups, in, out);
  const Extents& pad = o.pad.of(axes, op);
  options = {.stride = o.stride.of(axes, op),
             .pad_begin = pad,
             .pad_end = pad,
             .dilation = o.dilation.of(axes, op),
             .groups = o.groups};
  Shape shape{in};
  for (const Index n : kernel_shape(axes, kernel)) {
    check(n > 0, op, "kernel {} must be at least 1", n);
    shape.push_back(n);
  }
  shape.push_back(out / o.groups);
  weight = init.make(shape);
  if (o.bias) bias = init.of_bias(shape).make({out}, 1);
}

Tensor ConvNd::apply(const Tensor& x, bool relu, ChannelStats* moments) const {
  ConvOptions now = options;
  now.relu = relu;
  if (InferenceCache* inference_cache = StepContext::current().inference_cache) {
    inference_cache->keep(weight);
    now.filters = &inference_cache->filters();
  }
  return conv(x, weight, bias, now, {}, moments);
}

}  // namespace trireme
