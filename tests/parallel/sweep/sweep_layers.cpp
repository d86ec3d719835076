// Random graphs of layers and of ops that choose among elements.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/ops/ops.h"
#include "tests/parallel/sweep/random_graph.h"

namespace trireme::test {
namespace {

/// [N, spatial..., C].
Shape image(RandomChoice& dice, Index channels) {
  Shape x{dice.between(1, 3)};
  for (Index axes = dice.between(1, 3); axes > 0; --axes) x.push_back(dice.between(1, 7));
  x.push_back(channels);
  return x;
}

}  // namespace

Graph transposed_convolution(RandomChoice& dice) {
  const Index groups = dice.of({1, 1, 2, 3}), in = groups * dice.between(1, 12), out = groups * dice.between(1, 12);
  const Shape x = image(dice, in);
  ConvOptions o{.groups = groups};
  Extents more{0, 0, 0};
  Shape w{in};
  for (int a = 0; a < x.rank() - 2; ++a) {
    const auto at = static_cast<std::size_t>(a);
    const Index k = dice.between(1, 4);
    o.stride[at] = dice.between(1, 3);
    o.dilation[at] = dice.of({1, 1, 2});
    o.pad_begin[at] = dice.between(0, k - 1);
    o.pad_end[at] = dice.between(0, k - 1);
    more[at] = dice.between(0, std::max(o.stride[at], o.dilation[at]) - 1);
    w.push_back(k);
  }
  w.push_back(out / groups);
  const bool bias = dice.chance(50);
  std::vector<Shape> inputs{x, w};
  if (bias) inputs.push_back({out});
  return {fmt::format("conv_transpose of {} by {}, stride {}, dilation {}, padding {} and {}, output padding {}{}", x,
                      w, fmt::join(o.stride, ","), fmt::join(o.dilation, ","), fmt::join(o.pad_begin, ","),
                      fmt::join(o.pad_end, ","), fmt::join(more, ","), bias ? ", bias" : ""),
          inputs, [=](const std::vector<Tensor>& t) {
            return conv_transpose(t[0], t[1], t.size() > 2 ? t[2] : Tensor{}, o, more);
          }};
}

Graph resampled(RandomChoice& dice) {
  const Shape x = image(dice, dice.between(1, 40));
  InterpolateOptions o;
  for (int a = 0; a < x.rank() - 2; ++a) o.size.push_back(dice.between(1, 12));
  const Index kind = dice.between(0, 4);
  if (kind == 0)
    return {fmt::format("adaptive_max_pool of {} to {}", x, o.size),
            {x},
            [=](const std::vector<Tensor>& t) { return adaptive_max_pool(t[0], o.size); },
            true};
  o.mode = kind == 1 ? ResampleMode::nearest : kind == 2 ? ResampleMode::area : ResampleMode::linear;
  o.align_corners = kind == 4;
  if (kind != 2 && dice.chance(40)) {
    o.size = {};
    o.scale = dice.of({0.5, 0.7, 1.0, 1.3, 2.0, 3.0});
  }
  return {fmt::format("interpolate of {} to {} or by {}, kind {}", x, o.size, o.scale, kind),
          {x},
          [=](const std::vector<Tensor>& t) { return interpolate(t[0], o); }};
}

Graph grouped(RandomChoice& dice) {
  const Index groups = dice.of({1, 1, 2, 4, 8}), channels = groups * dice.between(1, 40);
  const Shape x = image(dice, channels);
  const double eps = 0.1;  // groups of one element have no slope without it
  switch (dice.between(0, 2)) {
    case 0:
      return {fmt::format("group_norm of {} in {}", x, groups),
              {x, {channels}, {channels}},
              [=](const std::vector<Tensor>& t) { return group_norm(t[0], groups, t[1], t[2], eps); }};
    case 1:
      return {fmt::format("rms_norm of {}", x), {x, {channels}}, [=](const std::vector<Tensor>& t) {
                return rms_norm(t[0], t[1], eps);
              }};
    default: {
      const Shape last{x[-2], x[-1]};
      return {fmt::format("layer_norm of {} over {}", x, last), {x, last, last}, [=](const std::vector<Tensor>& t) {
                return layer_norm_over(t[0], last, t[1], t[2], eps);
              }};
    }
  }
}

Graph selected(RandomChoice& dice) {
  Shape x;
  for (Index axes = dice.between(1, 4); axes > 0; --axes) x.push_back(dice.between(1, 9));
  const int axis = static_cast<int>(dice.between(0, x.rank() - 1));
  const Index n = x[axis], most = dice.between(1, 6), k = dice.between(1, n);
  Shape few = x;
  few[axis] = most;
  std::vector<Index> ids;
  for (Index i = 0; i < few.numel(); ++i) ids.push_back(dice.between(0, n - 1));
  const Tensor at = Tensor::from(ids, few);
  const bool largest = dice.chance(50), keep = dice.chance(50);
  switch (dice.between(0, 5)) {
    case 0:
      return {fmt::format("gather of {} along {} by {}", x, axis, few), {x}, [=](const std::vector<Tensor>& t) {
                return gather(t[0], at, axis);
              }};
    case 1:
      return {fmt::format("scatter_add to {} along {} of {}", x, axis, few),
              {x, few},
              [=](const std::vector<Tensor>& t) { return scatter_add(t[0], at, t[1], axis); }};
    case 2:
      return {fmt::format("topk {} of {} along {}, largest {}", k, x, axis, largest),
              {x},
              [=](const std::vector<Tensor>& t) { return topk(t[0], k, axis, largest).values; },
              true};
    case 3:
      return {
          fmt::format("cumsum of {} along {}, prod kept {}", x, axis, keep), {x}, [=](const std::vector<Tensor>& t) {
            const Tensor product = prod(t[0] * 0.5 + 1, {axis}, true);
            return keep ? cumsum(t[0], axis) : cumsum(t[0], axis) * product;
          }};
    case 4:
      return {fmt::format("where of {}", x),
              {x, {x[-1]}},
              [=](const std::vector<Tensor>& t) { return where(t[0] > t[1], t[0] * 2, t[1]); },
              true};
    default: {
      Shape begin = x, end = x;
      const PadMode mode = dice.of({PadMode::reflect, PadMode::replicate, PadMode::circular});
      const Index room = mode == PadMode::reflect ? n - 1 : n;
      for (int a = 0; a < x.rank(); ++a) begin[a] = end[a] = 0;
      begin[axis] = dice.between(0, room);
      end[axis] = dice.between(0, room);
      return {fmt::format("pad of {} by {} and {}, mode {}", x, begin, end, static_cast<int>(mode)),
              {x},
              [=](const std::vector<Tensor>& t) { return pad(t[0], begin, end, mode); }};
    }
  }
}

}  // namespace trireme::test
