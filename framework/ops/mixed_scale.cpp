// The mixed-scale dense stack: one block of features forward, one block of gradients backward.
#include "framework/ops/mixed_scale.h"

#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"

namespace trireme {
namespace {

constexpr const char* mixed_scale_op = "mixed_scale_dense";
using Border = std::shared_ptr<const MixedScaleHalo>;

/// A layer as its kernels take it. An undefined bias: none.
struct Layer {
  MixedScaleOptions options;
  SavedTensor w;
  Tensor bias;
};
/// All layers, and the halo of a part of an image; null: of a whole one.
struct Stack {
  std::vector<Layer> layers;
  Border halo;

  /// The largest dilation of the layers from i on: the distance from which they read.
  Index reach(std::size_t i) const {
    Index most = 0;
    for (; i < layers.size(); ++i) most = std::max(most, layers[i].options.dilation);
    return most;
  }
  Shape begin(const Tensor& x) const {
    if (halo) return halo->begin;
    Shape zeros = x.shape();
    for (int i = 0; i < zeros.rank(); ++i) zeros[i] = 0;
    return zeros;
  }
};

void check_operands(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                    const std::vector<Index>& dilations) {
  check(x.rank() == 4 || x.rank() == 5, mixed_scale_op, "input is {}, expected [N, H, W, C] or [N, D, H, W, C]",
        x.shape());
  Index channels = x.dim(-1);
  check(channels > 0, mixed_scale_op, "input is {}, expected at least one channel", x.shape());
  for (std::size_t i = 0; i < w.size(); ++i) {
    const Shape& filter = w[i].shape();
    Shape expected{filter.rank() > 0 ? filter[0] : 0};
    for (int d = 0; d < x.rank() - 2; ++d) expected.push_back(3);
    expected.push_back(channels);
    check(filter == expected && filter[0] > 0, mixed_scale_op, "filter {} is {}, expected [outputs, {}, {}]", i, filter,
          x.rank() == 5 ? "3, 3, 3" : "3, 3", channels);
    ops::check_channels(mixed_scale_op, "bias", bias[i], filter[0], true);
    check(dilations[i] >= 1, mixed_scale_op, "the dilation is {} in layer {}, expected at least 1", dilations[i], i);
    channels += filter[0];
  }
}

/// For a Trace: convolutions whose results are concatenated to their inputs.
Tensor composed(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                const std::vector<Index>& dilations) {
  Tensor y = x;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const Extents d{dilations[i], dilations[i], dilations[i]};
    y = concat({y, conv(y, w[i], bias[i], {.pad_begin = d, .pad_end = d, .dilation = d, .relu = true})}, -1);
  }
  return y;
}

/// The box of `extent` from a place in a tensor to one in another, whose types may differ.
void copy(const Tensor& to, const Shape& to_at, const Tensor& from, const Shape& from_at, const Shape& extent) {
  if (extent.numel() == 0) return;
  if (to.dtype() == from.dtype()) return launch<kernel::CopyBox>(to, to_at, from, from_at, extent);
  Shape zeros = extent;
  for (int i = 0; i < zeros.rank(); ++i) zeros[i] = 0;
  const Tensor part = Tensor::empty(extent, from.dtype(), from.device());
  launch<kernel::CopyBox>(part, zeros, from, from_at, extent);
  launch<kernel::CopyBox>(to, to_at, part.to(to.dtype()), zeros, extent);
}

/// The gradients of a layer's filter (input w) and bias (input w + 1).
void give_filter(Gradients& to, int w, const Layer& layer, const Tensor& block, const Tensor& gradient) {
  const int b = w + 1;
  if (!to.needs_grad(w) && !to.needs_grad(b)) return;
  const Gradients::Target dw =
      to.needs_grad(w) ? to.grad_buffer(w) : Gradients::Target{Tensor::like(layer.w.get()), false};
  const Gradients::Target db = to.needs_grad(b) ? to.grad_buffer(b) : Gradients::Target{{}, dw.accumulate};
  if (dw.accumulate == db.accumulate)
    return launch<kernel::MixedScaleBackwardWeight>(dw.tensor, db.tensor, block, gradient, layer.options,
                                                    dw.accumulate);
  // One of the two already has a value.
  const Tensor fresh_w = dw.accumulate ? Tensor::like(dw.tensor) : dw.tensor;
  const Tensor fresh_b = db.accumulate ? Tensor::like(db.tensor) : db.tensor;
  launch<kernel::MixedScaleBackwardWeight>(fresh_w, fresh_b, block, gradient, layer.options, false);
  if (dw.accumulate) add_into(dw.tensor, fresh_w);
  if (db.accumulate) add_into(db.tensor, fresh_b);
}

/// The block's gradient, at first dy; written over layer by layer, from the last on.
Tensor gradient_block(const Stack& stack, const Tensor& block, const Tensor& dy) {
  const DType type = ops::accumulator(dy.dtype());
  if (!stack.halo) return type != dy.dtype() ? dy.to(type) : is_uniquely_owned(dy) ? dy : dy.clone();
  const Tensor gradient = Tensor::empty(block.shape(), type, block.device());
  Shape zeros = dy.shape();
  for (int i = 0; i < zeros.rank(); ++i) zeros[i] = 0;
  copy(gradient, stack.halo->begin, dy, zeros, dy.shape());
  return gradient;
}

void backward_of(const Stack& stack, const Tensor& block, const Tensor& dy, Gradients& g) {
  const Tensor gradient = gradient_block(stack, block, dy);
  for (std::size_t i = stack.layers.size(); i-- > 0;) {
    const Layer& layer = stack.layers[i];
    const MixedScaleOptions& o = layer.options;
    launch<kernel::MixedScaleBackwardRelu>(gradient, block, o);
    give_filter(g, static_cast<int>(1 + 2 * i), layer, block, gradient);
    if (i == 0 && !g.needs_grad(0)) break;
    if (stack.halo) stack.halo->exchange(gradient, o.channels, o.outputs, o.dilation);
    launch<kernel::MixedScaleBackwardInput>(gradient, layer.w, o);
  }
  write_grad(g, 0, [&](const Tensor& dx) {
    Shape zeros = dx.shape();
    for (int i = 0; i < zeros.rank(); ++i) zeros[i] = 0;
    copy(dx, zeros, gradient, stack.begin(gradient), dx.shape());
  });
}

/// inputs: x, then filter and bias of each layer.
Tensor run(const Tensor& x, std::vector<Tensor> inputs, Stack stack, const std::vector<Index>& dilations) {
  Shape shape = stack.halo ? stack.halo->room : x.shape(), own = x.shape(), zeros = x.shape();
  for (int i = 0; i < zeros.rank(); ++i) zeros[i] = 0;
  shape[-1] = x.dim(-1);
  for (const Layer& layer : stack.layers) shape[-1] += layer.options.outputs;
  own[-1] = shape[-1];
  const Tensor block = Tensor::empty(shape, x.dtype(), x.device());
  copy(block, stack.begin(x), x, zeros, x.shape());
  if (stack.halo) stack.halo->exchange(block, 0, x.dim(-1), stack.reach(0));
  for (std::size_t i = 0; i < stack.layers.size(); ++i) {
    const Layer& layer = stack.layers[i];
    launch<kernel::MixedScaleLayer>(block, layer.w, layer.bias, layer.options);
    if (stack.halo && i + 1 < stack.layers.size())
      stack.halo->exchange(block, layer.options.channels, layer.options.outputs, stack.reach(i + 1));
  }
  Tensor y = block;
  if (stack.halo) {
    y = Tensor::empty(own, x.dtype(), x.device());
    copy(y, zeros, block, stack.halo->begin, own);
  }
  bool recorded = false;
  for (const Tensor& input : inputs) recorded = needs_record(mixed_scale_op, y, {&input}) || recorded;
  if (!recorded) return y;
  return record(mixed_scale_op, y, std::move(inputs), dilations,
                [stack = std::move(stack), block = SavedTensor(block.detach())](const Tensor& dy, Gradients& g) {
                  backward_of(stack, block.get(), dy, g);
                });
}

/// The halo of an image that ranks divide. Each rank's block has room for a halo as wide as the largest dilation. After
/// each layer the ranks exchange the new channels' halo; in backward they exchange the halo of its gradient.
class RankHalo final : public MixedScaleHalo {
 public:
  /// Of this rank's box of `has`, up to `reach` cells wide.
  RankHalo(const ShardSpec& has, Index reach)
      : has_(has.shared_from_this()), line_(has.mesh().line(spatial_axes(has))) {
    for (const auto& place : line_.at) boxes_.push_back(has.box(place));
    const Box mine = boxes_[static_cast<std::size_t>(line_.me)], wide = widened(mine, reach);
    room = wide.size;
    begin = from(mine.at, wide.at);
    origin_ = wide.at;
  }

  void exchange(const Tensor& block, Index first, Index count, Index reach) const override {
    std::vector<Box> have = boxes_, want;
    for (Box& box : have) {
      box.at[-1] = first;
      box.size[-1] = count;
      want.push_back(widened(box, reach));
    }
    Exchange exchange(has_->mesh(), line_, route(have, want, line_.me), block, origin_, MemoryKind::halos);
    for (const auto& [box, values] : exchange.wait()) copy_box(block, origin_, values, box.at, box);
  }

 private:
  /// The box with `reach` cells more on all sides, within the image.
  Box widened(Box box, Index reach) const {
    for (int dim = 1; dim < box.at.rank() - 1; ++dim) {
      const Index end = std::min(has_->global_shape()[dim], box.at[dim] + box.size[dim] + reach);
      box.at[dim] = std::max<Index>(0, box.at[dim] - reach);
      box.size[dim] = end - box.at[dim];
    }
    return box;
  }

  ShardSpec::Ptr has_;
  RankMesh::Line line_;
  std::vector<Box> boxes_;  // the ranks' own
  Shape origin_;            // of the block
};

/// Images are divided along s. Filters that are divided over channels come together: each rank makes all channels of
/// its cells.
Tensor divided_mixed_scale(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                           const std::vector<Index>& dilations) {
  ops::Factors f =
      ops::factors_of({.op = mixed_scale_op, .dims = "n s.. c -> n s.. c", .whole = "c", .windows = "s"}, {x});
  std::vector<Tensor> operands{x};
  for (std::size_t i = 0; i < w.size(); ++i) {
    operands.insert(operands.end(), {w[i], bias[i]});
    for (const Tensor& t : {w[i], bias[i]}) f.in.emplace_back(t ? static_cast<std::size_t>(t.rank()) : 0);
    f.result[-1] += ops::global_shape(w[i])[0];
  }
  const ops::Placed p = ops::place(mixed_scale_op, f, operands);
  std::vector<Tensor> filters, shifts;
  for (std::size_t i = 0; i < w.size(); ++i) {
    filters.push_back(p[1 + 2 * i]);
    shifts.push_back(p[2 + 2 * i]);
  }
  std::shared_ptr<const MixedScaleHalo> halo;
  if (spatial_axes(p.spec(0)) != 0 && !dilations.empty())
    halo = std::make_shared<RankHalo>(p.spec(0), *std::max_element(dilations.begin(), dilations.end()));
  return p.put(mixed_scale_dense(p[0], filters, shifts, dilations, std::move(halo)));
}

}  // namespace

Tensor mixed_scale_dense(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                         const std::vector<Index>& dilations, Border halo) {
  ops::check_float(mixed_scale_op, x);
  check(w.size() == bias.size() && w.size() == dilations.size(), mixed_scale_op,
        "got {} filters, {} biases and {} dilations, expected the same number of each", w.size(), bias.size(),
        dilations.size());
  for (std::size_t i = 0; i < w.size(); ++i) check(w[i].defined(), mixed_scale_op, "filter {} is undefined", i);
  bool divided = x.shard_spec();
  for (const auto* tensors : {&w, &bias})
    for (const Tensor& t : *tensors) divided = divided || t.shard_spec();
  if (divided) return divided_mixed_scale(x, w, bias, dilations);
  check_operands(x, w, bias, dilations);
  if (ops::is_traced() && !halo) return composed(x, w, bias, dilations);
  // Kernels accept f32 weights with bf16 and f16 data; any other type is a recorded cast.
  const auto in_type = [&](const Tensor& t) {
    return t && !(is_half(x.dtype()) && t.dtype() == DType::f32) ? t.to(x.dtype()) : t;
  };
  Stack stack{{}, halo};
  std::vector<Tensor> inputs{x};
  MixedScaleOptions o{.channels = x.dim(-1)};
  for (int d = 0; halo && d < x.rank() - 2; ++d) {
    o.begin[static_cast<std::size_t>(d)] = halo->begin[d + 1];
    o.size[static_cast<std::size_t>(d)] = x.dim(d + 1);
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    const Tensor filter = in_type(w[i]), shift = in_type(bias[i]);
    o.outputs = w[i].dim(0);
    o.dilation = dilations[i];
    stack.layers.push_back({o, filter, shift});
    inputs.push_back(filter);
    inputs.push_back(shift);
    o.channels += o.outputs;
  }
  return run(x, std::move(inputs), std::move(stack), dilations);
}

Tensor mixed_scale_dense(const Tensor& x, const std::vector<Tensor>& w, const std::vector<Tensor>& bias,
                         const std::vector<Index>& dilations) {
  return mixed_scale_dense(x, w, bias, dilations, nullptr);
}

}  // namespace trireme
