// The ops of a ShardedOps that hold no weights: pooling, joining, dropout, elementwise pairs.
#include <bit>

#include "framework/ops/help.h"
#include "framework/ops/random.h"
#include "parallel/split/sharded_ops.h"

namespace trireme {
Tensor ShardedOps::pool(const Tensor& x, const PoolOptions& o,
                        const std::function<Tensor(const Tensor&, const PoolOptions&)>& local) const {
  const Ptr sx = of(x);
  const std::vector<Window> all = windows(x.rank() - 2, o);
  const Shape whole = outputs(sx->global_shape(), all);
  const Layout layout = sx->for_outputs(whole);
  if (!(layout == sx->layout_)) return local(relayout(x, *sx->with(sx->global_shape(), layout)), o);
  const Ptr to = sx->with(whole, layout);
  const Halo halo(*sx, *to, all);
  const Patch mine = patch(to->box(), sx->box(), all, sx->global_shape());
  PoolOptions options = o;
  options.pad_begin = mine.before;
  options.pad_end = mine.behind;
  return sx->put(local(halo_exchange(plain(x), halo), options), whole, layout);
}

Tensor ShardedOps::bias_relu_pool(const Tensor& x, const Tensor& bias, const PoolOptions& o) const {
  const Ptr sx = of(x);
  const std::vector<Window> all = windows(x.rank() - 2, o);
  const Shape whole = outputs(sx->global_shape(), all);
  const Halo halo(*sx, *sx->with(whole, sx->layout_), all);
  // One pass where no rank's windows reach into another's rows.
  if (halo.have != halo.want) return trireme::max_pool(relu(bias ? zip(x, ops::in_type(bias, x.dtype()), add) : x), o);
  const Layout along = Layout().with(0, sx->layout_[x.rank() - 1]);
  const Tensor b = weight(bias, along, sx->layout_.axes());
  return sx->put(bias_relu_pool_dropout(plain(x), b, o, 0, 0), whole, sx->layout_);
}

Tensor ShardedOps::global_pool(const Tensor& x, ReduceKind kind) const {
  const Ptr sx = of(x);
  const int last = x.rank() - 1;
  Layout spatial_whole = sx->layout_;
  std::vector<int> axes;
  for (int axis = 1; axis < last; ++axis) {
    axes.push_back(axis);
    spatial_whole[axis] = Layout::none;
  }
  const Layout layout = Layout().with(0, sx->layout_[0]).with(1, sx->layout_[last]);
  const Shape whole{sx->global_shape()[0], sx->global_shape()[last]};
  if (kind == ReduceKind::max) {
    const Tensor all = relayout(x, *sx->with(sx->global_shape(), spatial_whole));
    return sx->put(global_max_pool(plain(all)), whole, layout);
  }
  const Tensor share = trireme::reduce(plain(x), ReduceKind::sum, axes).reshape({x.dim(0), x.dim(last)});
  const Tensor all = reduce_from_parallel(share, *grid_, spatial_axes(*sx));
  return sx->put(scale(all, 1 / static_cast<double>(sx->global_shape().product(1, last))), whole, layout);
}

Tensor ShardedOps::flatten(const Tensor& x) const {
  const Ptr sx = of(x);
  const Layout rows = Layout().with(0, sx->layout_[0]);
  const Tensor y = trireme::flatten(plain(relayout(x, *sx->with(sx->global_shape(), rows))));
  return sx->put(y, {sx->global_shape()[0], y.dim(1)}, rows);
}

Tensor ShardedOps::concat(const std::vector<Tensor>& parts, int axis) const {
  Layout layout;  // of the part that is divided most; along the axis itself the parts are whole
  Shape whole = of(parts[0])->global_shape();
  whole[axis] = 0;
  for (const Tensor& part : parts) {
    check(part.defined(), "concat", "a part is undefined");
    const Ptr s = of(part);
    check(!s->weight_, "concat", "part {} is a weight of layers that are split over ranks, and these join no weights",
          s->global_shape());
    Shape expected = whole;
    if (s->global_shape().rank() == whole.rank()) expected[axis] = s->global_shape()[axis];
    check(s->global_shape() == expected, "concat", "parts {} and {} differ along other axes than {}",
          of(parts[0])->global_shape(), s->global_shape(), axis);
    const Layout along = s->layout_.with(axis, Layout::none);
    if (std::popcount(along.axes()) > std::popcount(layout.axes())) layout = along;
    whole[axis] += expected[axis];
  }
  std::vector<Tensor> met;
  for (const Tensor& part : parts) met.push_back(plain(relayout(part, *with(of(part)->global_shape(), layout))));
  return put(trireme::concat(met, axis), whole, layout);
}

namespace {
/// 1 when b is broadcast to a, -1 when a is broadcast to b, 0 for the same shape. Extents may be 0.
int broadcast_order(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) return a.rank() > b.rank() ? 1 : -1;
  for (int axis = 0; axis < a.rank(); ++axis)
    if (a[axis] != b[axis]) return b[axis] == 1 ? 1 : -1;
  return 0;
}
}  // namespace

Tensor ShardedOps::zip(const Tensor& a, const Tensor& b, const Binary& local) const {
  const Ptr sa = of(a), sb = of(b);
  // The one that the other is broadcast to, or else what is divided, says how the result lies.
  const int longer = broadcast_order(sa->global_shape(), sb->global_shape());
  const bool first = longer != 0 ? longer > 0 : sa->layout_.axes() != 0;
  const Tensor &base = first ? a : b, &other = first ? b : a;
  const Ptr to = first ? sa : sb, from = first ? sb : sa;
  const int before = to->global_shape().rank() - from->global_shape().rank();
  check(ops::broadcast("split", sa->global_shape(), sb->global_shape()) == to->global_shape(), "split",
        "operands are {} and {} over all ranks, expected two of which one broadcasts to the other; expand() one of "
        "them first",
        sa->global_shape(), sb->global_shape());
  Layout layout;  // of the other: like the base, where it is not broadcast
  for (int axis = 0; axis < from->global_shape().rank(); ++axis)
    if (from->global_shape()[axis] == to->global_shape()[axis + before]) layout[axis] = to->layout_[axis + before];
  const AxisMask copies = to->layout_.axes() & ~layout.axes();
  // The plan sums a weight's gradient over some of the axes.
  const AxisMask uses = from->weight_ ? copies & ~grid_->grad_reduce_axes() : copies;
  const Tensor here = from->weight_ ? weight(other, layout, to->layout_.axes())
                                    : plain(relayout(other, *to->with(from->global_shape(), layout)));
  const Tensor met = copy_to_parallel(here, grid_, uses);
  const Tensor in = to->weight_ ? weight(base, to->layout_.axes()) : plain(base);
  return to->put(first ? local(in, met) : local(met, in), to->global_shape(), to->layout_);
}

Tensor ShardedOps::ones(const Tensor& x, const Shape& whole) const {
  const Ptr sx = of(x);
  Layout layout = sx->layout_;
  for (int axis = 0; axis < whole.rank(); ++axis)
    if (whole[axis] != sx->global_shape()[axis]) layout[axis] = Layout::none;
  const Tensor y = sx->put(Tensor::full(sx->with(whole, layout)->box().size, 1, x.dtype(), x.device()), whole, layout);
  y.impl()->batch = x.impl()->batch;
  return y;
}

/// i64 [rows]: the sample ids of x's rows, where it has those of all ranks (rows_).
Tensor ShardedOps::samples(const Tensor& x) const {
  const Tensor mine = batch_of(x).samples;
  const Index rows = x.dim(0);
  if (rows_.empty() || layout_[0] != Layout::none || !mine) return ops::sample_ids("dropout", x).to(cpu());
  const Tensor all = Tensor::zeros({rows}, DType::i64);
  const auto me = static_cast<std::size_t>(grid_->index(0));
  copy_unnoted(all.view_rows(rows_[me], rows_[me + 1]), mine.detach());
  grid_->sum(all, 1u);
  return all;
}

Tensor ShardedOps::dropout(const Tensor& x, double p, std::uint64_t layer) const {
  const Ptr sx = of(x);
  const Box mine = sx->box();
  int last = x.rank() - 1;  // the last axis that is divided: what follows it lies together in the whole sample
  while (last > 0 && sx->layout_[last] == Layout::none) --last;
  if (last == 0) return sx->put(trireme::dropout(plain(x), p, layer), sx->global_shape(), sx->layout_);

  const Index run = mine.size.product(last, x.rank()), rows = x.dim(0) == 0 ? 0 : x.numel() / std::max<Index>(run, 1);
  const Tensor ids = samples(x);
  const Tensor sample = Tensor::empty({rows}, DType::i64), first = Tensor::empty({rows}, DType::i64);
  const Index per_sample = x.dim(0) == 0 ? 0 : rows / x.dim(0);
  for (Index row = 0; row < rows; ++row) {
    Index rest = row % per_sample, at = mine.at[last], stride = sx->global_shape()[last];
    for (int axis = last - 1; axis > 0; --axis) {
      at += (mine.at[axis] + rest % mine.size[axis]) * stride;
      rest /= mine.size[axis];
      stride *= sx->global_shape()[axis];
    }
    sample.data<std::int64_t>()[row] = ids.data<std::int64_t>()[row / per_sample];
    first.data<std::int64_t>()[row] = at * sx->global_shape().product(last + 1, x.rank());
  }
  const Tensor y = ops::dropout_rows(plain(x).reshape({rows, run}), sample.to(x.device()), first.to(x.device()), p,
                                     ops::mask_key(x, layer));
  return sx->put(y.reshape(x.shape()), sx->global_shape(), sx->layout_);
}

}  // namespace trireme
