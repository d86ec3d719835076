// Nodes of a BlockDrawing that are layers.
#include "tests/parallel/sweep/random_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/ops/mixed_scale.h"
#include "framework/tensor/create.h"

namespace trireme::test {

bool BlockDrawing::gated(std::size_t i) {
  const Tensor& v = pool_[i];
  std::vector<std::size_t> fit;
  for (std::size_t j = 0; j < pool_.size(); ++j)
    if (pool_[j].rank() == 2) fit.push_back(j);
  if (fit.empty() || v.rank() < 3) return false;
  const std::size_t j = dice_.of(fit), at = keep(layer(Linear(pool_[j].dim(1), v.dim(-1))));
  const bool times = dice_.chance(50);
  const int between = v.rank() - 2;
  return add(times ? "gate" : "bias", {i, j}, [=](const Block& b, const Pool& p) {
    const Tensor wide = spread(b.layers[at](p[j]), between);
    return times ? p[i] * wide : p[i] + wide;
  });
}

bool BlockDrawing::scaled(std::size_t i) {
  const Tensor& v = pool_[i];
  Shape shape = rest_of(v);
  const int kind = static_cast<int>(dice_.between(0, 3));
  if (kind == 0) shape = {1};
  if (kind == 1) shape = {v.dim(-1)};
  if (kind == 2 && shape.rank() > 1) shape[-1] = 1;
  const bool times = dice_.chance(50);
  const std::size_t at = own(shape, dice_.of({"weight", "map", "gain"}), 0.3, times ? 1 : 0,
                             dice_.chance(70) ? StateKind::weight : StateKind::no_decay);
  return add(fmt::format("{}w{}", times ? "*" : "+", shape), {i},
             [=](const Block& b, const Pool& p) { return times ? p[i] * b.own[at].tensor : b.own[at].tensor + p[i]; });
}

bool BlockDrawing::dense(std::size_t i) {
  const Index in = pool_[i].dim(-1), out = dice_.between(1, 7);
  if (dice_.chance(30))
    for (std::size_t l = 0; l < block_.layers.size(); ++l)
      if (const auto* same = block_.layers[l].as<Linear>(); same && same->weight.dim(1) == in)
        return add(fmt::format("same_l{}", l), {i}, [=](const Block& b, const Pool& p) { return b.layers[l](p[i]); });
  switch (dice_.between(0, 3)) {
    case 0: {
      const std::size_t at = own({out, in}, dice_.of({"weight", "kernel"})), bias = own({out}, "bias");
      return add(fmt::format("own_linear({},{})", in, out), {i},
                 [=](const Block& b, const Pool& p) { return linear(p[i], b.own[at].tensor, b.own[bias].tensor); });
    }
    case 1: {
      const std::size_t at = own({in, out}, dice_.of({"weight", "kernel"}));
      return add(fmt::format("own_matmul({},{})", in, out), {i},
                 [=](const Block& b, const Pool& p) { return matmul(p[i], b.own[at].tensor); });
    }
    case 2:
      return on(fmt::format("mlp({},{})", in, out), i,
                layer(Sequential{Linear(in, out), relu, Linear(out, in, {.bias = false})}));
    default: return on(fmt::format("fc({},{})", in, out), i, layer(Linear(in, out, {.bias = dice_.chance(70)})));
  }
}

bool BlockDrawing::convolution(std::size_t i, int axes, Index channels) {
  const Index groups = channels % 2 == 0 && dice_.chance(30) ? 2 : dice_.chance(10) ? channels : 1;
  const Index out = groups * dice_.between(1, 3), k = dice_.of({1, 2, 3, 3, 5});
  const Index stride = dice_.chance(20) ? 2 : 1;
  const ConvLayerOptions o{.stride = stride,
                           .pad = dice_.chance(60) ? k / 2 : dice_.between(0, k / 2),
                           .dilation = dice_.chance(15) ? 2 : 1,
                           .groups = groups,
                           .bias = dice_.chance(60)};
  const std::string what = fmt::format("conv{}({},{},k{},s{},g{})", axes, channels, out, k, stride, groups);
  if (dice_.chance(25))
    for (std::size_t l = 0; l < block_.layers.size(); ++l)
      if (const auto* same = as_conv(block_.layers[l]);
          same && same->weight.rank() == axes + 2 && same->weight.dim(-1) * same->options.groups == channels)
        return add(fmt::format("same_l{}", l), {i}, [=](const Block& b, const Pool& p) { return b.layers[l](p[i]); });
  return on(what, i,
            axes == 1   ? layer(Conv1d(channels, out, k, o))
            : axes == 2 ? layer(Conv2d(channels, out, k, o))
                        : layer(Conv3d(channels, out, k, o)));
}

bool BlockDrawing::resampled(std::size_t i, int axes, Index channels) {
  if (draws_.integers || dice_.chance(50)) {
    const ConvTransposeLayerOptions o{.stride = dice_.of({1, 2, 2}), .pad = dice_.of({0, 0, 1})};
    const Index k = dice_.between(1, 3), out = dice_.between(1, 3);
    return on(fmt::format("conv_transpose{}({},{},k{})", axes, channels, out, k), i,
              axes == 1   ? layer(ConvTranspose1d(channels, out, k, o))
              : axes == 2 ? layer(ConvTranspose2d(channels, out, k, o))
                          : layer(ConvTranspose3d(channels, out, k, o)));
  }
  InterpolateOptions o{.mode = dice_.of({ResampleMode::nearest, ResampleMode::linear, ResampleMode::linear})};
  o.align_corners = o.mode == ResampleMode::linear && dice_.chance(30);
  if (dice_.chance(50))
    o.scale = dice_.of({0.5, 1.5, 2.0});
  else
    for (int a = 0; a < axes; ++a) o.size.push_back(dice_.between(1, 6));
  return add(fmt::format("interpolate({},{})", o.size, o.scale), {i},
             [=](const Block&, const Pool& p) { return interpolate(p[i], o); });
}

bool BlockDrawing::pooled(std::size_t i, int axes) {
  PoolOptions o;
  for (std::size_t a = 0; a < static_cast<std::size_t>(axes); ++a) {
    o.window[a] = dice_.between(1, 3);
    o.stride[a] = dice_.between(1, 2);
    if (draws_.integers) o.window[a] = o.stride[a] = dice_.of({1, 2, 2});
    if (!draws_.integers && dice_.chance(25)) o.pad_begin[a] = o.pad_end[a] = o.window[a] / 2;
  }
  o.ceil_mode = !draws_.integers && dice_.chance(20);
  Shape size;
  for (int a = 0; a < axes; ++a) size.push_back(dice_.between(1, 4));
  switch (dice_.between(0, draws_.integers ? 1 : 6)) {
    case 0: return add("max_pool", {i}, [=](const Block&, const Pool& p) { return max_pool(p[i], o); });
    case 1: return add("avg_pool", {i}, [=](const Block&, const Pool& p) { return avg_pool(p[i], o); });
    case 2: return add("global_max", {i}, [=](const Block&, const Pool& p) { return global_max_pool(p[i]); });
    case 3: return add("global_avg", {i}, [=](const Block&, const Pool& p) { return global_avg_pool(p[i]); });
    case 4: return add("adaptive_avg", {i}, [=](const Block&, const Pool& p) { return adaptive_avg_pool(p[i], size); });
    case 5: return add("adaptive_max", {i}, [=](const Block&, const Pool& p) { return adaptive_max_pool(p[i], size); });
    default: {
      const Init init = draws_.integers ? Init::constant(1) : Init::normal(0.2);
      return on("bias_relu_pool_dropout", i, layer(Tail{init.make({pool_[i].dim(-1)}), init}));
    }
  }
}

bool BlockDrawing::normed(std::size_t i, Index channels) {
  const double eps = 0.05;  // slopes of few elements stay small
  const Tensor& v = pool_[i];
  switch (dice_.between(0, 7)) {
    case 0: return on("layer_norm", i, layer(LayerNorm(channels, eps)));
    case 1: return on("rms_norm", i, layer(RMSNorm(channels, eps)));
    case 2: {
      const Index groups = channels % 2 == 0 ? 2 : 1;
      return on(fmt::format("group_norm{}", groups), i, layer(GroupNorm(groups, channels, eps)));
    }
    case 3: return on("instance_norm", i, layer(InstanceNorm(channels, eps, dice_.chance(50))));
    case 4: return v.rank() > 2 && on("layer_norm2", i, layer(LayerNorm(Shape{v.dim(-2), channels}, eps)));
    case 5: {
      const std::size_t j = like(i), at = keep(layer(BatchNorm(channels, {.eps = eps, .relu = dice_.chance(50)})));
      draws_.batch_norm = true;
      return j != i && add("batch_norm_add", {i, j},
                           [=](const Block& b, const Pool& p) { return (*b.layers[at].as<BatchNorm>())(p[i], p[j]); });
    }
    default: draws_.batch_norm = true; return on("batch_norm", i, layer(BatchNorm(channels, {.eps = eps})));
  }
}

bool BlockDrawing::attended(std::size_t i, Index channels) {
  if (draws_.integers || pool_[i].rank() != 3) return false;
  const Index heads = channels % 2 == 0 ? 2 : 1;
  const SelfAttentionOptions o{.causal = dice_.chance(40), .dropout = dice_.chance(25) ? 0.2 : 0};
  const std::size_t at = keep(layer(SelfAttention(channels, heads, o)));
  const bool lengths = dice_.chance(40);
  const Index n = pool_[i].dim(1);
  if (dice_.chance(20) && channels % 2 == 0)
    return add("rope", {i}, [=](const Block&, const Pool& p) {
      return rope(p[i].reshape({-1, n, 1, channels}), rope_table(n, channels)).reshape({-1, n, channels});
    });
  return add(lengths ? "attention(lengths)" : "attention", {i}, [=](const Block& b, const Pool& p) {
    const Tensor some = lengths ? remainder(select(p[0].at("ids"), 1, 0), static_cast<double>(n)) + 1 : Tensor();
    return (*b.layers[at].as<SelfAttention>())(p[i], some);
  });
}

bool BlockDrawing::together(std::size_t i, int axes, Index channels) {
  if (axes < 2 || axes > 3) return false;
  Shape w{1};
  for (int a = 0; a < axes; ++a) w.push_back(3);
  w.push_back(channels);
  Shape w2 = w;
  w2[0] = 2;
  w2[-1] = channels + 1;
  const std::size_t a = own(w), b0 = own({1}, "bias"), c = own(w2), d = own({2}, "bias");
  const Index far = dice_.between(1, 3);
  return add(fmt::format("mixed_scale_dense({})", far), {i}, [=](const Block& b, const Pool& p) {
    return mixed_scale_dense(p[i], {b.own[a].tensor, b.own[c].tensor}, {b.own[b0].tensor, b.own[d].tensor}, {1, far});
  });
}

bool BlockDrawing::twice(std::size_t i, Index channels) {
  const std::size_t at = keep(layer(Conv2d(channels, channels, 3, {.pad = 1})));
  return add("twice", {i},
             [=](const Block& b, const Pool& p) { return b.layers[at](relu(b.layers[at](p[i]))) + p[i]; });
}

}  // namespace trireme::test
