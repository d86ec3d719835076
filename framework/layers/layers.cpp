#include "framework/layers/layers.h"

#include "framework/autograd/step_context.h"
#include "framework/layers/init.h"
#include "kernels/core/random.h"

namespace trireme {
namespace {

/// Layers that this thread has made: what tells their starts apart before they have names.
thread_local std::uint64_t made = 0;

/// A weight [O, ..., I] and its bias [O].
void make(Tensor& weight, Tensor& bias, const Shape& shape, bool with_bias, Init start) {
  weight = Tensor::empty(shape);
  start_weight(weight, start, mix(made++, 0));
  if (!with_bias) return;
  bias = Tensor::empty({shape[0]});
  start_bias(bias, weight, start, mix(made++, 1));
}

Extents all(Index n) { return {n, n, n}; }

ConvOptions conv_options(const ConvLayerOptions& o) {
  return {.stride = all(o.stride),
          .pad_begin = all(o.pad),
          .pad_end = all(o.pad),
          .dilation = all(o.dilation),
          .groups = o.groups};
}

PoolOptions pool_options(std::string_view op, Index window, const PoolLayerOptions& o) {
  check(window > 0, op, "window is {}, expected at least 1", window);
  check(o.stride >= 0, op, "stride is {}, expected at least 1 (0 means the window)", o.stride);
  check(o.pad >= 0 && 2 * o.pad <= window, op, "padding is {}, expected at most half the window of {}", o.pad, window);
  return {.window = all(window),
          .stride = all(o.stride ? o.stride : window),
          .pad_begin = all(o.pad),
          .pad_end = all(o.pad)};
}

}  // namespace

Linear::Linear(Index in, Index out, Options options) : start(options.start) {
  check(in > 0 && out > 0, "linear", "{} inputs and {} outputs, expected at least 1 of each", in, out);
  make(weight, bias, {out, in}, options.bias, start);
}

ConvNd::ConvNd(Index in, Index out, const Shape& kernel, ConvOptions o, bool with_bias, Init from)
    : start(from), options(o) {
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
  make(weight, bias, shape, with_bias, start);
}

Conv1d::Conv1d(Index in, Index out, Index kernel, ConvLayerOptions o)
    : ConvNd(in, out, {kernel}, conv_options(o), o.bias, o.start) {}
Conv2d::Conv2d(Index in, Index out, Index kernel, ConvLayerOptions o)
    : ConvNd(in, out, {kernel, kernel}, conv_options(o), o.bias, o.start) {}
Conv3d::Conv3d(Index in, Index out, Index kernel, ConvLayerOptions o)
    : ConvNd(in, out, {kernel, kernel, kernel}, conv_options(o), o.bias, o.start) {}

Tensor ConvNd::apply(const Tensor& x, bool relu, ChannelStats* moments) const {
  ConvOptions now = options;
  now.relu = relu;
  if (InferenceCache* frozen = StepContext::current().frozen) frozen->keep(weight), now.filters = &frozen->filters();
  return conv(x, weight, bias, now, {}, moments);
}

Tensor conv_norm(const ConvNd& c, const BatchNorm& n, const Tensor& x, Tensor residual) {
  const StepContext& pass = StepContext::current();
  const bool training = is_training(x);
  if (training || pass.frozen == nullptr || c.options.relu || c.weight.shard_spec() ||
      is_recorded_or_traced({&x, &c.weight, &c.bias, &n.weight, &n.bias, &residual})) {
    ChannelStats moments;
    const Tensor y = c.apply(x, c.options.relu, training ? &moments : nullptr);
    return n(y, residual, moments);
  }
  const InferenceCache::Folded& folded = pass.frozen->fold(c, n, x.dtype());
  ConvOptions options = c.options;
  options.relu = n.options.relu;
  options.filters = &pass.frozen->filters();
  return conv(x, folded.weight, folded.bias, options, std::move(residual));
}

MaxPool::MaxPool(Index window, PoolLayerOptions o) : options(pool_options("max_pool", window, o)) {}
AvgPool::AvgPool(Index window, PoolLayerOptions o) : options(pool_options("avg_pool", window, o)) {}

BatchNorm::BatchNorm(Index channels, BatchNormOptions o, Init from) : options(o), start(from) {
  check(channels > 0, "batch_norm", "{} channels, expected at least 1", channels);
  weight = Tensor::full({channels}, start == Init::zeros ? 0 : 1), bias = Tensor::zeros({channels});
  running_mean = Tensor::zeros({channels}), running_var = Tensor::full({channels}, 1);
}

void BatchNorm::visit(const StateVisitor& v) {
  v("weight", weight, StateKind::no_decay, FileLayout::same, start), v("bias", bias, StateKind::no_decay);
  v("running_mean", running_mean, StateKind::buffer), v("running_var", running_var, StateKind::buffer);
}

Tensor Stash::operator()(const Tensor&) const {
  fail("stash", "'{}' stands alone: it works as a layer of a Sequential that also holds AddStashed(\"{}\")", name,
       name);
}
Tensor AddStashed::operator()(const Tensor&) const {
  fail("add_stashed", "'{}' stands alone: it works as a layer of a Sequential that also holds Stash{{\"{}\"}}", name,
       name);
}

LayerNorm::LayerNorm(Index channels, double epsilon) : eps(epsilon) {
  check(channels > 0, "layer_norm", "{} channels, expected at least 1", channels);
  weight = Tensor::full({channels}, 1), bias = Tensor::zeros({channels});
}

Dropout::Dropout(double probability) : p(probability) {
  check(p >= 0 && p < 1, "dropout", "probability is {}, expected 0 <= p < 1", p);
}

}  // namespace trireme
