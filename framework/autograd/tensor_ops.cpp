// Methods of Tensor that are recorded, or that depend on the tape.
#include "framework/autograd/tape.h"
#include "framework/tensor/batch.h"
#include "framework/tensor/fields.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/contracts/elementwise.h"

namespace trireme {

using detail::deref, detail::shape_as, detail::stored;

namespace {

/// Fills in a -1 and checks the count.
Shape resolve(const Shape& from, Shape to) {
  int hole = -1;
  for (int i = 0; i < to.rank(); ++i) {
    check(to[i] >= 0 || (to[i] == -1 && hole < 0), "reshape", "got {}, expected extents >= 0, of which one may be -1",
          to);
    if (to[i] < 0) hole = i;
  }
  // A rank may have no rows of a batch: -1 then stands for what one row would have.
  const int first = hole > 0 && from.rank() > 0 && from[0] == 0 && to[0] == 0 ? 1 : 0;
  const Index count = from.product(first, from.rank());
  Index known = 1;
  for (int i = first; i < to.rank(); ++i)
    if (i != hole) known *= to[i];
  check(hole < 0 ? known == count : known > 0 && count % known == 0, "reshape",
        "{} has {} elements and cannot become {}", from, from.numel(), to);
  if (hole >= 0) to[hole] = count / known;
  return to;
}

}  // namespace

Tensor Tensor::reshape(const Shape& wanted) const {
  const Impl& from = stored(impl_, "reshape");
  if (is_part(*this)) {
    bool same = wanted.rank() == from.shape.rank();
    for (int i = 0; same && i < wanted.rank(); ++i) same = wanted[i] == from.shape[i] || wanted[i] == -1;
    if (!same) refuse_part("reshape", from.shape, *from.shard_spec);
  }
  const Shape shape = resolve(from.shape, wanted);
  Tensor y = shape_as(from, shape);
  if (shape == from.shape) y.impl_->shard_spec = from.shard_spec;
  if (!needs_record("reshape", y, {this})) return y;
  return record("reshape", std::move(y), {*this}, [before = from.shape](const Tensor& dy, Gradients& g) {
    if (g.needs_grad(0)) g.set_grad(0, dy.reshape(before));
  });
}
Tensor Tensor::with(const std::string& name, const Tensor& other) const {
  check(defined() && other.defined(), "with", "a tensor is undefined: '{}' or the one that it is to stand beside",
        name);
  Tensor y = with_shard_spec(impl_->shard_spec);
  y.impl_->batch = impl_->batch;
  auto all = fields();
  all[name] = other;
  y.impl_->fields = std::make_shared<const std::map<std::string, Tensor>>(std::move(all));
  // To a trace it is another handle of the same numbers.
  return is_recorded_or_traced({}) ? record("with", std::move(y), {*this}, Backward{}) : y;
}
Tensor Tensor::to(DType type) const {
  if (type == dtype()) return *this;
  Tensor y = empty(shape(), type, device());
  y.impl_->shard_spec = impl_->shard_spec;
  launch<kernel::Cast>(y, *this);
  if (!needs_record("to", y, {this})) return y;
  return record("to", std::move(y), {*this}, [](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::Cast>(dx, dy); });
  });
}
Tensor Tensor::to(Device target) const {
  if (target == device()) return *this;
  Tensor y = empty(shape(), dtype(), target);
  y.impl_->shard_spec = impl_->shard_spec;
  copy_unnoted(y, *this);
  if (impl_->fields) y.impl_->fields = detail::each_field(*impl_, [&](const Tensor& t) { return t.to(target); });
  if (!needs_record("to", y, {this})) return y;
  return record("to", std::move(y), {*this}, [](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dx) { copy_unnoted(dx, dy); });
  });
}
Tensor Tensor::rows(Index begin, Index end) const {
  Tensor y = view_rows(begin, end);
  const BatchPtr batch = y.impl_->batch;  // the slice's, or none: not the whole's
  if (impl_->fields)
    y.impl_->fields =
        detail::each_field(*impl_, [&](const Tensor& t) { return has_rows_of(t, *impl_) ? t.rows(begin, end) : t; });
  if (needs_record("rows", y, {this})) {
    const Shape range{begin, end};
    y = record("rows", std::move(y), {*this}, range, [begin, end](const Tensor& dy, Gradients& g) {
      if (!g.needs_grad(0)) return;
      const Gradients::Target dx = g.grad_buffer(0);
      const Tensor mine = dx.tensor.view_rows(begin, end);
      if (dx.accumulate) return add_into(mine, dy);
      launch<kernel::Fill>(dx.tensor.view_rows(0, begin), 0.0);
      launch<kernel::Fill>(dx.tensor.view_rows(end, dx.tensor.dim(0)), 0.0);
      copy_unnoted(mine, dy);
    });
  }
  y.impl_->batch = batch;
  return y;
}
void Tensor::copy_from(const Tensor& source) const {
  const Impl& to = deref(impl_, "copy_from");
  const Impl& from = deref(source.impl_, "copy_from");
  check(!to.node || to.node->leaf || !is_recorded_or_traced({this}), "copy_from",
        "the tensor is the result of '{}': a write to it would not be recorded; write to a detach() of it",
        to.node ? to.node->op : "");
  const bool one_block = to.block == from.block;
  if (one_block && to.offset == from.offset && to.dtype == from.dtype && to.shape == from.shape) return;
  const bool overlap = one_block && to.offset < from.offset + static_cast<std::size_t>(source.view().bytes()) &&
                       from.offset < to.offset + static_cast<std::size_t>(view().bytes());
  copy_unnoted(*this, overlap ? source.clone() : source);
  note_write(*this);
}

}  // namespace trireme
