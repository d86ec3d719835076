#include "parallel/split/sharded_ops.h"

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/tensor/division_error.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "parallel/comm/world/norm_ranks.h"

namespace trireme {
AxisMask Layout::axes() const {
  AxisMask all = 0;
  for (int axis : over)
    if (axis != none) all |= 1u << axis;
  return all;
}

Layout Layout::with(int axis, int grid_axis) const {
  Layout other = *this;
  other[axis] = grid_axis;
  return other;
}

ShardedOps::ShardedOps(std::shared_ptr<const Grid> grid, const Shape& whole, const Layout& layout,
                       std::vector<Index> rows, const Box& mine)
    : ShardSpec(whole, mine.at), grid_(std::move(grid)), layout_(layout), rows_(std::move(rows)) {}

ShardedOps::Ptr ShardedOps::make(std::shared_ptr<const Grid> grid, const Shape& whole, const Layout& layout,
                                 std::vector<Index> rows) {
  const ShardedOps sketch(grid, whole, layout, rows, {whole, whole});
  return Ptr(new ShardedOps(std::move(grid), whole, layout, std::move(rows), sketch.box()));
}

ShardedOps::Ptr ShardedOps::of_weight(std::shared_ptr<const Grid> grid, const Shape& whole, const Layout& layout) {
  const Ptr plain = make(std::move(grid), whole, layout);
  const auto weight = std::shared_ptr<ShardedOps>(new ShardedOps(*plain));
  weight->weight_ = true;
  return weight;
}

ShardedOps::Ptr ShardedOps::with(const Shape& whole, const Layout& layout) const {
  return make(grid_, whole, layout, rows_);
}

ShardedOps::Ptr ShardedOps::of(const Tensor& t) const {
  if (t.shard_spec()) return static_cast<const ShardedOps*>(t.shard_spec())->shared_from_this();
  return make(grid_, t.shape(), {});
}

std::pair<Index, Index> ShardedOps::range(int axis, int index) const {
  if (axis > 0 || rows_.empty()) return even_share(global_shape()[axis], grid_->size(layout_[axis]), index);
  return {rows_[index], rows_[index + 1]};
}

Box ShardedOps::box(const std::vector<int>& coordinates) const {
  Box b{global_shape(), global_shape()};
  for (int axis = 0; axis < global_shape().rank(); ++axis) {
    const int over = layout_[axis];
    const auto [begin, end] =
        over == Layout::none ? std::pair(Index{0}, global_shape()[axis]) : range(axis, coordinates[over]);
    b.at[axis] = begin;
    b.size[axis] = end - begin;
  }
  return b;
}

std::vector<Box> ShardedOps::boxes(const Grid::Line& line) const {
  std::vector<Box> all;
  for (const auto& at : line.at) all.push_back(box(at));
  return all;
}

AxisMask spatial_axes(const ShardedOps& x) {
  AxisMask axes = 0;
  for (int axis = 1; axis < x.global_shape().rank() - 1; ++axis)
    if (x.layout()[axis] != Layout::none) axes |= 1u << x.layout()[axis];
  return axes;
}

Halo::Halo(const ShardedOps& has, const ShardedOps& out, const std::vector<Window>& windows, bool transposed)
    : grid(has.shared_grid()), line(grid->line(spatial_axes(has))), have(has.boxes(line)) {
  for (std::size_t r = 0; r < have.size(); ++r) {
    const Box box = out.box(line.at[r]);
    want.push_back(transposed ? transposed_patch(box, have[r], windows, has.global_shape()).inputs
                              : patch(box, have[r], windows, has.global_shape()).inputs);
  }
}

double ShardedOps::sum(double part) const {
  const Tensor total = Tensor::scalar(part, DType::f64);
  grid_->sum(total, layout_.axes());
  return total.item();
}

Index ShardedOps::max_local_numel() const {
  Index most = 0;
  for (const Box& b : boxes(grid_->line(layout_.axes()))) most = std::max(most, b.size.numel());
  return most;
}

Tensor ShardedOps::put(const Tensor& y, const Shape& whole, const Layout& layout) const {
  if (layout.axes() == 0) return y;
  const Ptr shard = with(whole, layout);
  check(y.shape() == shard->box().size, "split", "a block of {} was made where {} of {} belongs", y.shape(),
        shard->box().size, whole);
  return y.with_shard_spec(shard);
}

Tensor ShardedOps::weight(const Tensor& w, AxisMask axes) const {
  if (!w) return w;
  const AxisMask again = grid_->grad_reduce_axes() & ~axes & ~of(w)->layout_.axes();
  const Tensor in = plain(w);
  for (int i = 0; i < grid_->axes(); ++i)
    if ((again >> i & 1) && grid_->index(i) > 0 && is_recorded_or_traced({&in}))
      return record("counted", in.detach(), {in}, [](const Tensor&, Gradients& g) {
        write_grad(g, 0, [](const Tensor& dw) { launch<kernel::Fill>(dw, 0.0); });
      });
  return in;
}

Tensor ShardedOps::weight(const Tensor& w, const Layout& layout, AxisMask axes) const {
  if (!w) return w;
  const Ptr sw = of(w);
  const Shape& whole = sw->global_shape();
  Layout moved = layout;  // but for what each rank cuts out of its copy
  for (int axis = 0; axis < whole.rank(); ++axis)
    if (const int over = layout[axis];
        over != Layout::none && over != sw->layout_[axis] && sw->weight_ && (grid_->grad_reduce_axes() >> over & 1))
      moved[axis] = Layout::none;
  const Tensor in = weight(relayout(w, *sw->with(whole, moved)), axes);
  if (moved == layout) return in;
  const Shape at = sw->with(whole, moved)->box().at;
  const Box mine = sw->with(whole, layout)->box();
  Tensor y = cut(in, at, mine);
  if (!needs_record("cut", y, {&in})) return y;
  return record("cut", std::move(y), {in}, [at, mine](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dw) {
      launch<kernel::Fill>(dw, 0.0);
      copy_box(dw, at, dy, mine.at, mine);
    });
  });
}

Tensor ShardedOps::weight(const Tensor& w, const Tensor& x) const { return weight(w, Layout(), of(x)->layout_.axes()); }

Layout ShardedOps::for_outputs(const Shape& whole) const {
  Layout layout = layout_;
  for (int axis = 1; axis < whole.rank() - 1; ++axis)
    if (layout[axis] != Layout::none && whole[axis] < grid_->size(layout[axis])) layout[axis] = Layout::none;
  return layout;
}

Tensor ShardedOps::gather(const Tensor& x) const { return relayout(x, *with(of(x)->global_shape(), {})); }

/// What linear, conv and conv_transpose have in common. The weight [O, ..., I] is whole, or divided over O (a column of
/// ranks: each makes some outputs from all inputs) or over I (a row: each adds its inputs' share to all outputs;
/// Shoeybi et al., Megatron-LM, arXiv 1909.08053; for convolutions Dryden et al., arXiv 1903.06681, and their SC'19
/// paper).
struct ShardedOps::Product {
  Tensor x, w, bias;  // x is laid out to suit; w and bias are plain
  Tensor late_bias;   // plain, to add behind the sum
  AxisMask sum = 0;   // the product is a share of the sum over these
  Layout layout;      // of the product
};

namespace {
void check_groups(const char* op, const Layout& filter, Index groups) {
  if (filter.axes() == 0 || groups == 1) return;
  fail_division(
      op,
      "a filter of {} groups cannot be split over channels: leave its layer whole, tensor(whole=NAME) (in C++ "
      "SplitOptions::whole)",
      groups);
}
}  // namespace

ShardedOps::Product ShardedOps::product(const Tensor& x, const Tensor& w, const Tensor& bias, bool transposed) const {
  const Ptr sx = of(x), sw = of(w);
  const int last = x.rank() - 1, first_axis = sw->layout_[0], last_axis = sw->layout_[w.rank() - 1];
  const int out = transposed ? last_axis : first_axis, in = transposed ? first_axis : last_axis;
  Layout wanted = sx->layout_;
  for (int axis = 0; axis <= last; ++axis)
    if (wanted[axis] != Layout::none && (wanted[axis] == out || wanted[axis] == in)) wanted[axis] = Layout::none;
  wanted[last] = in;
  Product p;
  p.x = relayout(x, *sx->with(sx->global_shape(), wanted));
  p.layout = wanted.with(last, out);
  AxisMask use = wanted.axes();
  if (out != Layout::none) {
    const std::shared_ptr<const ShardSpec> before = p.x.shard_spec() ? of(p.x) : nullptr;
    p.x = copy_to_parallel(plain(p.x), grid_, 1u << out).with_shard_spec(before);
    use |= 1u << out;
  }
  p.w = weight(w, use);
  if (in != Layout::none) {
    p.sum = 1u << in;
    p.late_bias = weight(bias, Layout(), use & ~p.sum);
  } else {
    p.bias = weight(bias, Layout().with(0, out), use);
  }
  return p;
}

Tensor ShardedOps::linear(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu) const {
  const Product p = product(x, w, bias);
  Shape whole = of(p.x)->global_shape();
  whole[-1] = of(w)->global_shape()[0];
  Tensor y = trireme::linear(plain(p.x), p.w, p.bias, relu && !p.sum);
  if (p.sum) {
    y = reduce_from_parallel(y, *grid_, p.sum);
    if (p.late_bias) y = add(y, p.late_bias.to(y.dtype()));
    if (relu) y = trireme::relu(y);
  }
  return of(x)->put(y, whole, p.layout);
}

Tensor ShardedOps::conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& o,
                        const Tensor& residual) const {
  Product p = product(x, w, bias);
  check_groups("conv", of(w)->layout_, o.groups);
  const Ptr sx = of(p.x);
  Shape whole = outputs(sx->global_shape(), windows(w.shape(), o));
  whole[-1] = of(w)->global_shape()[0];
  const Layout in = sx->for_outputs(whole);
  if (!(in == sx->layout_)) return conv(relayout(x, *of(x)->with(of(x)->global_shape(), in)), w, bias, o, residual);
  ConvOptions options = o;
  const bool late = p.sum != 0 || residual;
  if (late) options.relu = false;
  const Ptr to = sx->with(whole, p.layout);
  Tensor y = halo_conv(plain(p.x), p.w, p.bias, options, *sx, *to);
  if (p.sum) y = reduce_from_parallel(y, *grid_, p.sum);
  if (p.late_bias) y = add(y, p.late_bias.to(y.dtype()));
  y = of(x)->put(y, whole, p.layout);
  if (residual) y = add(y, residual);
  return late && o.relu ? relu(y) : y;
}

Tensor ShardedOps::conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& o,
                                  const Extents& output_pad) const {
  const char* op = "conv_transpose";
  check(x.rank() >= 3 && x.rank() <= 5 && w.rank() == x.rank(), op,
        "input is {}, the filter {}: expected [N, spatial..., I] and [I, kernel..., O / groups]", of(x)->global_shape(),
        of(w)->global_shape());
  check_groups(op, of(w)->layout_, o.groups);
  const std::vector<Window> all = windows(w.shape(), o);
  Shape whole = transposed_outputs(of(x)->global_shape(), all, output_pad);
  whole[-1] = of(w)->global_shape()[-1] * o.groups;
  const Layout in = of(x)->for_outputs(whole);
  if (!(in == of(x)->layout_))
    return conv_transpose(relayout(x, *of(x)->with(of(x)->global_shape(), in)), w, bias, o, output_pad);
  const Product p = product(x, w, bias, true);
  const Ptr sx = of(p.x), to = sx->with(whole, p.layout);
  const TransposedPatch mine = transposed_patch(to->box(), sx->box(), all, sx->global_shape());
  ConvOptions options = o;
  options.pad_begin = mine.pad_begin;
  options.pad_end = mine.pad_end;
  Tensor y = trireme::conv_transpose(halo_exchange(plain(p.x), Halo(*sx, *to, all, true)), p.w, p.bias, options,
                                     mine.output_pad);
  if (p.sum) y = reduce_from_parallel(y, *grid_, p.sum);
  if (p.late_bias) y = add(y, p.late_bias.to(y.dtype()));
  return sx->put(y, whole, p.layout);
}

Tensor ShardedOps::batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                              const Tensor& running_var, const BatchNormOptions& o, const Tensor& residual) const {
  const Ptr sx = of(x);
  const int last = x.rank() - 1;
  const Layout wanted = sx->layout_.with(last, of(gamma)->layout_[0]);
  const Ptr to = sx->with(sx->global_shape(), wanted);
  const Tensor in = relayout(x, *to), other = residual ? relayout(residual, *to) : Tensor();
  std::vector<Communicator*> within;  // ranks with other pixels of the same images
  for (int axis = 1; axis < last; ++axis)
    if (wanted[axis] != Layout::none) within.push_back(&grid_->along(wanted[axis]));
  StepContext context = StepContext::current();
  if (grid_->rows() >= 0 && wanted[0] != grid_->rows()) context.norm = {};  // each rank has come to have all rows
  if (!within.empty())
    context.norm = std::make_shared<CommunicatorNormRanks>(std::move(within), std::move(context.norm), grid_);
  const StepScope scope(std::move(context));
  const AxisMask use = wanted.axes();
  const Tensor y = trireme::batch_norm(plain(in), weight(gamma, use), weight(beta, use), plain(running_mean),
                                       plain(running_var), o, plain(other));
  return sx->put(y, sx->global_shape(), wanted);
}

}  // namespace trireme
