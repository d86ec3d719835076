// Methods of Tensor that are recorded, or that depend on the tape.
#include <numeric>

#include "framework/autograd/tape.h"
#include "framework/ops/place.h"
#include "framework/tensor/batch.h"
#include "framework/tensor/division_error.h"
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
  // A rank may have no rows of a batch. Then -1 is the extent that one row would give.
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

namespace {

using Dim = ops::Factors::Dim;

/// The dimensions of two shapes with equal numbers of elements, as products of common factors.
struct Refined {
  std::vector<Index> extents = {};  ///< of the factors
  std::vector<bool> mixed = {};     ///< a factor whose elements a dimension of the other shape would cut
  std::vector<Dim> in = {}, out = {};
};
Refined refined(const Shape& in, const Shape& out) {
  Refined r{.in = std::vector<Dim>(static_cast<std::size_t>(in.rank())),
            .out = std::vector<Dim>(static_cast<std::size_t>(out.rank()))};
  int i = 0, j = 0;
  Index a = 1, b = 1;  // remaining factors of in[i - 1] and out[j - 1]
  const auto add = [&](Index extent, bool mixed) {
    if (extent > 1) {
      r.in[static_cast<std::size_t>(i - 1)].push_back(static_cast<int>(r.extents.size()));
      r.out[static_cast<std::size_t>(j - 1)].push_back(static_cast<int>(r.extents.size()));
      r.extents.push_back(extent);
      r.mixed.push_back(mixed);
    }
  };
  bool mixed = false;
  while (true) {
    while (a == 1 && i < in.rank()) a = in[i++];
    while (b == 1 && j < out.rank()) b = out[j++];
    if (a == 1 || b == 1 || a == 0 || b == 0) break;
    const Index common = std::min(a, b);
    if (a % common == 0 && b % common == 0) {
      add(common, mixed);
      a /= common;
      b /= common;
      if (a == 1 && b == 1) mixed = false;
    } else {  // [6, 4] to [4, 6]: no common factor in front
      mixed = true;
      const Index inner = std::gcd(a, b);
      if (inner == 1) return {.extents = {}, .mixed = {}, .in = {}, .out = {}};
      add(inner, true);
      a /= inner;
      b /= inner;
    }
  }
  return r;
}

/// The global shape for a reshape of x to `wanted`. The caller may give the extents of this rank's block: [N, T, heads,
/// D] with this rank's heads.
Shape global_of(const Tensor& x, const Shape& wanted) {
  const Shape &block = x.shape(), &whole = x.global_shape();
  if (block == whole) return resolve(whole, wanted);
  const bool hole = std::ranges::find(wanted, Index{-1}) != wanted.end();
  const auto cells = [](const Shape& s) {  // of a row, where a rank has no rows
    Index all = 1;
    for (const Index n : s) all *= n <= 0 ? 1 : n;
    return all;
  };
  const Index known = cells(wanted);
  const auto fits = [&](const Shape& s) { return hole ? cells(s) % known == 0 : known == cells(s); };
  bool named = !hole;  // an extent of the block itself
  for (int d = 0; d < std::min(wanted.rank(), block.rank()); ++d)
    named = named || (wanted[d] == block[d] && block[d] != whole[d]);
  const bool local = named && fits(block);
  if (!local) return resolve(whole, wanted);
  if (hole)  // only ranks with a larger part could resolve -1, and all ranks must agree
    fail_division("reshape",
                  "this rank has {} of {}, and {} may mean the part or the whole: give all extents of the whole, "
                  "without -1",
                  block, whole, wanted);
  const Shape here = resolve(block, wanted);
  Shape to = here;
  for (int d = 0; d < block.rank(); ++d) {
    if (block[d] == whole[d]) continue;
    // The dimension that begins at the same element as this one. If there are several, since extents are 1: the one
    // with the same index.
    int at = -1;
    for (int e = 0; e < to.rank(); ++e)
      if (here.product(0, e) == block.product(0, d) && (at < 0 || e == d || block.rank() - d == to.rank() - e)) at = e;
    if (at < 0) continue;
    if (here[at] > 0 && block[d] % here[at] == 0)
      to[at] = whole[d] / (block[d] / here[at]);  // it is split: [heads D] to [heads, D]
    else if (block[d] > 0 && here[at] % block[d] == 0)
      to[at] = here[at] / block[d] * whole[d];  // it is joined: [heads, D] to [heads D]
  }
  check(to.numel() == whole.numel(), "reshape",
        "this rank has {} of {}, and {} says neither how the part nor how the whole becomes another shape: give the "
        "extents of the whole",
        block, whole, wanted);
  return to;
}

/// reshape() of x that ranks divide: along a dimension that is split or joined, the outer factor may be divided.
Tensor divided_reshape(const Tensor& x, const Shape& wanted) {
  const Shape to = global_of(x, wanted);
  const Refined r = refined(x.global_shape(), to);
  if (x.global_shape().numel() == 0 || (r.in.empty() && x.rank() > 0)) {
    ops::Factors none{.in = {std::vector<Dim>(static_cast<std::size_t>(x.rank()))},
                      .out = std::vector<Dim>(static_cast<std::size_t>(to.rank())),
                      .result = to};
    return ops::place("reshape", none, {x})[0].reshape(to);
  }
  ops::Factors f{.in = {r.in}, .out = r.out, .result = to};
  for (std::size_t i = 0; i < r.extents.size(); ++i) f.factors.push_back({.extent = r.extents[i], .whole = r.mixed[i]});
  const ops::Placed p = ops::place("reshape", f, {x});
  return p.put(p[0].reshape(p.out().block()));
}

}  // namespace

Tensor Tensor::reshape(const Shape& wanted) const {
  const Impl& from = stored(impl_, "reshape");
  if (from.shard_spec && wanted != from.shape) return divided_reshape(*this, wanted);
  const Shape shape = resolve(from.shape, wanted);
  Tensor y = shape_as(from, shape);
  if (shape == from.shape) y.impl_->shard_spec = from.shard_spec;
  if (!needs_record("reshape", y, {this})) return y;
  return record("reshape", std::move(y), {*this}, {}, ops::twice([before = from.shape](const Tensor& dy, Gradients& g) {
                  if (g.needs_grad(0)) g.set_grad(0, dy.reshape(before));
                }));
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
  return record("to", std::move(y), {*this}, {}, ops::twice([](const Tensor& dy, Gradients& g) {
                  if (g.records()) return g.set_grad(0, dy.to(g.input(0).dtype));
                  write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::Cast>(dx, dy); });
                }));
}
Tensor Tensor::to(Device target) const {
  if (target == device()) return *this;
  Tensor y = empty(shape(), dtype(), target);
  y.impl_->shard_spec = impl_->shard_spec;
  copy_unnoted(y, *this);
  if (impl_->fields) y.impl_->fields = detail::each_field(*impl_, [&](const Tensor& t) { return t.to(target); });
  if (!needs_record("to", y, {this})) return y;
  return record("to", std::move(y), {*this}, {}, ops::twice([](const Tensor& dy, Gradients& g) {
                  if (g.records()) return g.set_grad(0, dy.to(g.input(0).device));
                  write_grad(g, 0, [&](const Tensor& dx) { copy_unnoted(dx, dy); });
                }));
}
Tensor Tensor::rows(Index begin, Index end) const {
  if (shard_spec() && rank() > 0) {
    const ops::Placed p = ops::place("rows", ops::same_dims({*this}, {0}), {*this});
    return p.put(p[0].rows(begin, end));
  }
  Tensor y = view_rows(begin, end);
  const BatchPtr batch = y.impl_->batch;  // the slice's, or none: not the whole's
  if (impl_->fields)
    y.impl_->fields =
        detail::each_field(*impl_, [&](const Tensor& t) { return has_rows_of(t, *impl_) ? t.rows(begin, end) : t; });
  if (needs_record("rows", y, {this})) {
    const Shape range{begin, end};
    y = record("rows", std::move(y), {*this}, range, ops::twice([begin, end](const Tensor& dy, Gradients& g) {
                 if (!g.needs_grad(0)) return;
                 if (g.records()) return g.set_grad(0, ops::padded(dy, 0, begin, g.input(0).shape));
                 const Gradients::Target dx = g.grad_buffer(0);
                 const Tensor mine = dx.tensor.view_rows(begin, end);
                 if (dx.accumulate) return add_into(mine, dy);
                 launch<kernel::Fill>(dx.tensor.view_rows(0, begin), 0.0);
                 launch<kernel::Fill>(dx.tensor.view_rows(end, dx.tensor.dim(0)), 0.0);
                 copy_unnoted(mine, dy);
               }));
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
