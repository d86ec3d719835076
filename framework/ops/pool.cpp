// Pooling over 1 to 3 spatial axes, and the fused tail of a convolution block.
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/random.h"

namespace trireme {
namespace {

Shape pool_shape(const char* op, const Shape& x, const PoolOptions& o) {
  check(x.rank() >= 3 && x.rank() <= 5, op, "input is {}, expected [N, spatial..., C] with 1 to 3 spatial axes", x);
  Shape y{x[0]};
  for (int axis = 1; axis < x.rank() - 1; ++axis) {
    const auto s = static_cast<std::size_t>(axis - 1);
    check(o.window[s] >= 1 && o.stride[s] >= 1 && o.dilation[s] >= 1, op,
          "window {}, stride {} and dilation {} must be at least 1", o.window[s], o.stride[s], o.dilation[s]);
    const Index reach = o.dilation[s] * (o.window[s] - 1) + 1, padded = x[axis] + o.pad_begin[s] + o.pad_end[s];
    check(o.pad_begin[s] >= 0 && o.pad_begin[s] < reach && o.pad_end[s] >= 0 && o.pad_end[s] < reach, op,
          "padding {} and {} must be smaller than the window, {}", o.pad_begin[s], o.pad_end[s], reach);
    check(padded >= reach, op, "input {} is too small: {} with padding, the window covers {} on spatial axis {}", x,
          padded, reach, s);
    y.push_back((padded - reach) / o.stride[s] + 1);
  }
  y.push_back(x[-1]);
  return y;
}
Index cells(const Shape& x, const PoolOptions& o) {
  Index n = 1;
  for (int s = 0; s < x.rank() - 2; ++s) n *= o.window[static_cast<std::size_t>(s)];
  return n;
}
std::vector<int> spatial_axes(const char* op, const Tensor& x) {
  check(x.rank() >= 3, op, "input is {}, expected [N, spatial..., C]", x.shape());
  std::vector<int> axes;
  for (int i = 1; i < x.rank() - 1; ++i) axes.push_back(i);
  return axes;
}

}  // namespace

Tensor max_pool(const Tensor& x, const PoolOptions& o) {
  ops::check_float("max_pool", x);
  if (x.shard_spec()) return x.shard_spec()->pool(x, o, max_pool);
  Tensor y = Tensor::empty(pool_shape("max_pool", x.shape(), o), x.dtype(), x.device());
  const Tensor index = Tensor::empty(y.shape(), cells(x.shape(), o) > 255 ? DType::i32 : DType::u8, x.device());
  launch<kernel::MaxPool>(y, index, x, o);
  if (!needs_record("max_pool", y, {&x})) return y;
  return record("max_pool", std::move(y), {x}, o, [index, o](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::MaxPoolBackward>(dx, dy, index, o); });
  });
}

Tensor avg_pool(const Tensor& x, const PoolOptions& o) {
  ops::check_float("avg_pool", x);
  check(o.dilation == Extents{1, 1, 1}, "avg_pool", "dilation is for max_pool only");
  if (x.shard_spec()) return x.shard_spec()->pool(x, o, avg_pool);
  Tensor y = Tensor::empty(pool_shape("avg_pool", x.shape(), o), x.dtype(), x.device());
  launch<kernel::AvgPool>(y, x, o);
  if (!needs_record("avg_pool", y, {&x})) return y;
  return record("avg_pool", std::move(y), {x}, o, [o](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::AvgPoolBackward>(dx, dy, o); });
  });
}

Tensor global_avg_pool(const Tensor& x) {
  if (x.shard_spec()) return x.shard_spec()->global_pool(x, ReduceKind::mean);
  return reduce(x, ReduceKind::mean, spatial_axes("global_avg_pool", x)).reshape({x.dim(0), x.dim(-1)});
}
Tensor global_max_pool(const Tensor& x) {
  if (x.shard_spec()) return x.shard_spec()->global_pool(x, ReduceKind::max);
  return reduce(x, ReduceKind::max, spatial_axes("global_max_pool", x)).reshape({x.dim(0), x.dim(-1)});
}

Tensor bias_relu_pool_dropout(const Tensor& x, const Tensor& bias_given, const PoolOptions& o, double p,
                              std::uint64_t layer) {
  const char* op = "bias_relu_pool_dropout";
  ops::check_float(op, x);
  check(p >= 0 && p < 1, op, "probability {} lies outside [0, 1)", p);
  if (const ShardSpec* s = ops::shard_spec_of({&x, &bias_given}))
    return dropout(s->bias_relu_pool(x, bias_given, o), p, layer);
  if (!is_training(x)) p = 0;
  const Shape shape = pool_shape(op, x.shape(), o);
  for (int s = 0; s < x.rank() - 2; ++s) {
    const auto i = static_cast<std::size_t>(s);
    check(o.stride[i] == o.window[i] && o.pad_begin[i] == 0 && o.pad_end[i] == 0 && o.dilation[i] == 1, op,
          "windows must not overlap and take no padding or dilation: use relu, max_pool and dropout");
  }
  check(cells(x.shape(), o) <= 254, op, "a window has {} cells, at most 254: use max_pool", cells(x.shape(), o));
  ops::check_channels(op, "bias", bias_given, x.dim(-1), true);
  const Tensor bias = ops::in_type(bias_given, x.dtype());
  const Tensor sample = p > 0 ? ops::sample_ids(op, x) : Tensor{};
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor index = Tensor::empty(shape, DType::u8, x.device());
  launch<kernel::BiasReluPoolDropout>(y, index, x, bias, sample, o, p, p > 0 ? ops::mask_key(x, layer) : MaskKey(0));
  if (!needs_record(op, y, {&x, &bias})) return y;
  // One half: the bias' gradient falls out of the pass that makes dx.
  return record(op, std::move(y), {x, bias}, o, [index, o, p, full = x.shape()](const Tensor& dy, Gradients& g) {
    if (!g.needs_grad(0) && !g.needs_grad(1)) return;
    const Gradients::Target db = g.needs_grad(1) ? g.grad_buffer(1) : Gradients::Target{};
    if (dy.numel() == 0 && db.tensor && !db.accumulate) launch<kernel::Fill>(db.tensor, 0.0);
    Tensor dx = Tensor::empty(full, dy.dtype(), dy.device());
    launch<kernel::BiasReluPoolDropoutBackward>(dx, db.tensor, dy, index, o, p, db.accumulate);
    g.set_grad(0, std::move(dx));
  });
}

}  // namespace trireme
