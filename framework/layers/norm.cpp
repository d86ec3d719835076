#include "framework/layers/norm.h"

#include "framework/autograd/step_context.h"
#include "framework/layers/inference_cache.h"
#include "framework/ops/help.h"

namespace trireme {

Tensor conv_norm(const ConvNd& c, const BatchNorm& n, const Tensor& x, Tensor residual) {
  const StepContext& context = StepContext::current();
  const bool training = is_training(x);
  if (training || context.inference_cache == nullptr || c.options.relu || c.weight.shard_spec() ||
      is_recorded_or_traced({&x, &c.weight, &c.bias, &n.weight, &n.bias, &residual})) {
    ChannelStats moments;
    const Tensor y = c.apply(x, c.options.relu, training ? &moments : nullptr);
    return n(y, residual, moments);
  }
  const InferenceCache::Folded& folded = context.inference_cache->fold(c, n, x.dtype());
  ConvOptions options = c.options;
  options.relu = n.options.relu;
  options.filters = &context.inference_cache->filters();
  return conv(x, folded.weight, folded.bias, options, std::move(residual));
}

BatchNorm::BatchNorm(Index channels, BatchNormOptions o, Init weight_init) : options(o), init(std::move(weight_init)) {
  check(channels > 0, "batch_norm", "{} channels, expected at least 1", channels);
  init(weight = Tensor::empty({channels}), 0);
  bias = Tensor::zeros({channels});
  running_mean = Tensor::zeros({channels});
  running_var = Tensor::full({channels}, 1);
}

void BatchNorm::visit(const StateVisitor& v) {
  v("weight", weight, StateKind::no_decay, init);
  v("bias", bias, StateKind::no_decay, Init::zeros());
  v("running_mean", running_mean, StateKind::buffer, Init::zeros());
  v("running_var", running_var, StateKind::buffer, Init::ones());
}

LayerNorm::LayerNorm(const Shape& last_axes, double epsilon, bool with_bias) : eps(epsilon) {
  check(last_axes.rank() > 0 && last_axes.numel() > 0, "layer_norm", "axes of {}, expected at least 1 each", last_axes);
  weight = Tensor::full(last_axes, 1);
  if (with_bias) bias = Tensor::zeros(last_axes);
}

RMSNorm::RMSNorm(Index channels, double epsilon) : eps(epsilon) {
  check(channels > 0, "rms_norm", "{} channels, expected at least 1", channels);
  weight = Tensor::full({channels}, 1);
}

GroupNorm::GroupNorm(Index groups, Index channels, double epsilon, bool affine)
    : groups(groups), channels(channels), eps(epsilon) {
  check(groups > 0 && channels > 0 && channels % groups == 0, "group_norm", "{} groups do not divide {} channels",
        groups, channels);
  if (affine) {
    weight = Tensor::full({channels}, 1);
    bias = Tensor::zeros({channels});
  }
}
Tensor GroupNorm::operator()(const Tensor& x) const {
  check(x && x.rank() >= 2 && x.global_shape()[-1] == channels, "group_norm", "input is {}, expected [N, ..., {}]",
        x ? x.global_shape() : Shape{}, channels);
  return group_norm(x, groups, weight, bias, eps);
}

}  // namespace trireme
