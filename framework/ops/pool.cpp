// Pooling over 1 to 3 spatial axes, and the fused tail of a convolution block.
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "framework/ops/random.h"
#include "kernels/plans/pool_shape.h"

namespace trireme {
namespace {

std::vector<int> spatial_axes(const char* op, const Tensor& x) {
  check(x.rank() >= 3, op, "input is {}, expected [N, spatial..., C]", x.shape());
  std::vector<int> axes;
  for (int i = 1; i < x.rank() - 1; ++i) axes.push_back(i);
  return axes;
}

/// ceil_mode as padding after the axes. As in PyTorch, the last window must start inside the input or the padding
/// before it.
PoolOptions without_ceil(const char* op, const Tensor& x, PoolOptions o) {
  check(x.rank() >= 3 && x.rank() <= 5, op, "input is {}, expected [N, spatial..., C] with 1 to 3 spatial axes",
        x.shape());
  o.ceil_mode = false;
  const Shape& whole = ops::global_shape(x);
  for (int d = 0; d < x.rank() - 2; ++d) {
    const auto s = static_cast<std::size_t>(d);
    check(o.stride[s] >= 1, op, "stride {} must be at least 1", o.stride[s]);
    const Index reach = o.dilation[s] * (o.window[s] - 1) + 1, in = whole[d + 1] + o.pad_begin[s];
    Index count = (in + o.pad_end[s] - reach + o.stride[s] - 1) / o.stride[s] + 1;
    if ((count - 1) * o.stride[s] >= in) --count;
    o.pad_end[s] = std::max(o.pad_end[s], (count - 1) * o.stride[s] + reach - in);
  }
  return o;
}

/// The box of the image that this rank's outputs read, with the padding at its borders.
Tensor divided_pool(const Tensor& x, const PoolOptions& o, Tensor (*f)(const Tensor&, const PoolOptions&)) {
  const std::vector<Window> all = windows(x.rank() - 2, o);
  const ops::Placed p =
      ops::place({.op = "pool", .dims = "n s.. c -> n s.. c", .windows = "s"}, {x}, outputs(ops::global_shape(x), all));
  if (trireme::spatial_axes(p.spec(0)) == 0) return p.put(f(p[0], o));
  const Patch mine = patch(p.out().box(), p.spec(0).box(), all, ops::global_shape(x));
  PoolOptions options = o;
  options.pad_begin = mine.before;
  options.pad_end = mine.behind;
  return p.put(f(halo_exchange(p[0], Halo(p.spec(0), p.out(), all)), options));
}

/// max_pool(relu(x + bias)) with windows that tile the image.
Tensor divided_bias_relu_pool(const Tensor& x, const Tensor& bias, const PoolOptions& o) {
  const std::vector<Window> all = windows(x.rank() - 2, o);
  const ops::Placed p = ops::place({.op = "pool", .dims = "n s.. c, c -> n s.. c", .windows = "s"}, {x, bias},
                                   outputs(ops::global_shape(x), all));
  if (trireme::spatial_axes(p.spec(0)) != 0) {
    const Halo halo(p.spec(0), p.out(), all);
    // One pass where no rank's windows reach into another's rows.
    if (halo.have != halo.want) return max_pool(relu(bias ? add(x, ops::in_type(bias, x.dtype())) : x), o);
  }
  return p.put(bias_relu_pool_dropout(p[0], p[1], o, 0, 0));
}

}  // namespace

Tensor max_pool(const Tensor& x, const PoolOptions& o) {
  ops::check_float("max_pool", x);
  if (o.ceil_mode) return max_pool(x, without_ceil("max_pool", x, o));
  if (x.shard_spec()) return divided_pool(x, o, max_pool);
  Tensor y = Tensor::empty(pool_output_shape(x.shape(), o, "max_pool"), x.dtype(), x.device());
  const Tensor index = Tensor::empty(y.shape(), pool_index_type(x.shape(), o), x.device());
  launch<kernel::MaxPool>(y, index, x, o);
  if (!needs_record("max_pool", y, {&x})) return y;
  return record("max_pool", std::move(y), {x}, o, [index, o](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::MaxPoolBackward>(dx, dy, index, o); });
  });
}

Tensor avg_pool(const Tensor& x, const PoolOptions& o) {
  ops::check_float("avg_pool", x);
  if (o.ceil_mode) {
    PoolOptions floor = without_ceil("avg_pool", x, o);
    if (!o.count_padding) return avg_pool(x, floor);
    // Given padding counts, and cells beyond it do not: given padding becomes cells that are zero.
    Shape begin = x.shape(), end = x.shape();
    for (int i = 0; i < x.rank(); ++i) {
      const bool spatial = i > 0 && i < x.rank() - 1;
      const auto s = static_cast<std::size_t>(i - 1);
      begin[i] = spatial ? o.pad_begin[s] : 0;
      end[i] = spatial ? o.pad_end[s] : 0;
      if (spatial) {
        floor.pad_begin[s] = 0;
        floor.pad_end[s] -= o.pad_end[s];
      }
    }
    floor.count_padding = false;
    return avg_pool(pad(x, begin, end), floor);
  }
  check(o.dilation == Extents{1, 1, 1}, "avg_pool", "dilation is for max_pool only");
  if (x.shard_spec()) return divided_pool(x, o, avg_pool);
  Tensor y = Tensor::empty(pool_output_shape(x.shape(), o, "avg_pool"), x.dtype(), x.device());
  launch<kernel::AvgPool>(y, x, o);
  if (!needs_record("avg_pool", y, {&x})) return y;
  return record("avg_pool", std::move(y), {x}, o, ops::twice([o](const Tensor& dy, Gradients& g) {
                  const auto back = [o](const Tensor& dx, const Tensor& dy) {
                    launch<kernel::AvgPoolBackward>(dx, dy, o);
                  };
                  if (!g.records()) return write_grad(g, 0, [&](const Tensor& dx) { back(dx, dy); });
                  const auto pool = [o](const Tensor& y, const Tensor& x) { launch<kernel::AvgPool>(y, x, o); };
                  g.set_grad(0, ops::linear_map("avg_pool", dy, g.input(0), back, pool));
                }));
}

Tensor global_avg_pool(const Tensor& x) {
  if (x.shard_spec()) {
    const ops::Placed p = ops::place({.op = "global_avg_pool", .dims = "n s.. c -> n c", .sums = "s"}, {x});
    const double cells = static_cast<double>(ops::global_shape(x).product(1, x.rank() - 1));
    if (p.sum() == 0) return p.put(global_avg_pool(p[0]));
    const Tensor share = reduce(p[0], ReduceKind::sum, spatial_axes("global_avg_pool", x));
    return scale(p.put(share.reshape({p[0].dim(0), p[0].dim(-1)})), 1 / cells);
  }
  return reduce(x, ReduceKind::mean, spatial_axes("global_avg_pool", x)).reshape({x.dim(0), x.dim(-1)});
}
Tensor global_max_pool(const Tensor& x) {
  if (x.shard_spec())
    return ops::on_blocks({.op = "global_max_pool", .dims = "n s.. c -> n c", .whole = "s"}, x, global_max_pool);
  return reduce(x, ReduceKind::max, spatial_axes("global_max_pool", x)).reshape({x.dim(0), x.dim(-1)});
}

Tensor bias_relu_pool_dropout(const Tensor& x, const Tensor& bias_given, const PoolOptions& o, double p,
                              std::uint64_t layer) {
  const char* op = "bias_relu_pool_dropout";
  ops::check_float(op, x);
  check(p >= 0 && p < 1, op, "probability {} lies outside [0, 1)", p);
  if (ops::is_divided({&x, &bias_given})) return dropout(divided_bias_relu_pool(x, bias_given, o), p, layer);
  if (!is_training(x)) p = 0;
  const Shape shape = pool_block_output_shape(x.shape(), o, op);
  ops::check_channels(op, "bias", bias_given, x.dim(-1), true);
  const Tensor bias = ops::in_type(bias_given, x.dtype());
  const Tensor sample = p > 0 ? ops::sample_ids(op, x) : Tensor{};
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor index = Tensor::empty(shape, DType::u8, x.device());
  launch<kernel::BiasReluPoolDropout>(y, index, x, bias, sample, o, p, p > 0 ? ops::mask_key(x, layer) : MaskKey(0));
  if (!needs_record(op, y, {&x, &bias})) return y;
  // One half: the pass that computes dx also sums the bias' gradient.
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
