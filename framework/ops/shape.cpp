// Ops that move elements.
#include <algorithm>
#include <numeric>

#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "framework/ops/select.h"
#include "framework/ops/take_rows.h"
#include "framework/tensor/batch.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

Shape zeros(int rank) {
  Shape s;
  for (int i = 0; i < rank; ++i) s.push_back(0);
  return s;
}
void copy_box(const Tensor& to, const Shape& to_at, const Tensor& from, const Shape& from_at, const Shape& extent) {
  if (extent.numel() > 0) launch<kernel::CopyBox>(to, to_at, from, from_at, extent);
}
/// Input i's gradient is dy in a box at `at`, and zero elsewhere. Several pieces of one tensor need no more memory than
/// their own size.
void give_box(Gradients& g, int i, const Tensor& dy, const Shape& at) {
  if (!g.needs_grad(i)) return;
  const Gradients::Target to = g.grad_buffer(i);
  const Shape origin = zeros(dy.rank());
  if (!to.accumulate) {
    launch<kernel::Fill>(to.tensor, 0.0);
    return copy_box(to.tensor, at, dy, origin, dy.shape());
  }
  if (dy.numel() == 0) return;
  const Tensor piece = Tensor::like(dy);
  copy_box(piece, origin, to.tensor, at, dy.shape());
  add_into(piece, dy);
  copy_box(to.tensor, at, piece, origin, dy.shape());
}
/// The box of x at `at`, copied and recorded. axis: the only one along which it may be cut.
Tensor piece_of(const Tensor& x, int axis, const Shape& at, const Shape& shape) {
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  copy_box(y, zeros(x.rank()), x, at, shape);
  if (axis == 0) y.impl()->batch = slice_batch(x.impl()->batch, x.dim(0), at[0], at[0] + shape[0]);
  if (!needs_record("split", y, {&x})) return y;
  return record("split", std::move(y), {x}, at, ops::twice([at, axis](const Tensor& dy, Gradients& g) {
                  if (g.records()) return g.set_grad(0, ops::padded(dy, axis, at[axis], g.input(0).shape));
                  give_box(g, 0, dy, at);
                }));
}
/// x with element place(i), i in [0, count), of its axis at place i.
template <class F>
Tensor rearranged(const Tensor& x, int axis, Index count, F&& place) {
  Tensor ids = Tensor::empty({count}, DType::i64);
  for (Index i = 0; i < count; ++i) ids.data<Index>()[i] = place(i);
  return take(x, ops::constant(ids.to(x.device())), axis);
}

/// concat() of parts that ranks divide: along the axis itself they come together whole.
Tensor divided_concat(const std::vector<Tensor>& parts, int axis) {
  const Shape& first = ops::global_shape(parts[0]);
  for (const Tensor& part : parts) {
    ops::check_same_type("concat", parts[0], part);
    const Shape& shape = ops::global_shape(part);
    Shape expected = first;
    if (shape.rank() == expected.rank()) expected[axis] = shape[axis];
    check(shape == expected, "concat", "parts are {} and {}, expected equal extents except along axis {}", first, shape,
          axis);
  }
  const ops::Placed p = ops::place("concat", ops::same_dims(parts, {axis}), parts);
  std::vector<Tensor> blocks;
  for (std::size_t i = 0; i < parts.size(); ++i) blocks.push_back(p[i]);
  return p.put(concat(blocks, axis));
}

}  // namespace

Tensor concat(const std::vector<Tensor>& parts, int axis) {
  check(!parts.empty() && parts[0], "concat", "got no parts, expected at least one");
  axis = ops::axis_of("concat", axis, parts[0].rank());
  for (const Tensor& part : parts)
    if (part && part.shard_spec()) return divided_concat(parts, axis);
  Shape shape = parts[0].shape();
  shape[axis] = 0;
  for (const Tensor& part : parts) {
    ops::check_same_type("concat", parts[0], part);
    Shape expected = parts[0].shape();
    if (part.rank() == expected.rank()) expected[axis] = part.dim(axis);
    check(part.shape() == expected, "concat", "parts are {} and {}, expected equal extents except along axis {}",
          parts[0].shape(), part.shape(), axis);
    shape[axis] += part.dim(axis);
  }
  Tensor y = Tensor::empty(shape, parts[0].dtype(), parts[0].device());
  if (axis == 0 && parts.size() > 1) y.impl()->batch = join_batches(parts);
  Shape at = zeros(y.rank());
  bool recorded = false;
  for (const Tensor& part : parts) {
    copy_box(y, at, part, zeros(y.rank()), part.shape());
    at[axis] += part.dim(axis);
    recorded = needs_record("concat", y, {&part}) || recorded;
  }
  if (!recorded) return y;
  std::vector<Index> sizes;
  for (const Tensor& part : parts) sizes.push_back(part.dim(axis));
  return record("concat", std::move(y), parts, axis, ops::twice([sizes, axis](const Tensor& dy, Gradients& g) {
                  Shape from = zeros(dy.rank());
                  for (std::size_t i = 0; i < sizes.size(); ++i) {
                    if (g.records())
                      ops::give_recorded(g, static_cast<int>(i),
                                         [&] { return slice(dy, axis, from[axis], from[axis] + sizes[i]); });
                    else
                      write_grad(g, static_cast<int>(i),
                                 [&](const Tensor& dx) { copy_box(dx, zeros(dy.rank()), dy, from, dx.shape()); });
                    from[axis] += sizes[i];
                  }
                }));
}

namespace {
/// split() of x that ranks divide. Along the axis itself a rank has a share of each piece.
std::vector<Tensor> divided_split(const Tensor& x, const std::vector<Index>& sizes, int axis) {
  const ShardSpec& has = *x.shard_spec();
  const auto parts = static_cast<Index>(has.mesh().ranks(has.over(axis)));
  // The ranges of x that make up each piece; else each piece is a range.
  std::vector<Shares::Range> ranges = has.over(axis) ? has.shares(axis).ranges : std::vector<Shares::Range>{};
  std::vector<std::size_t> ends;
  const auto fit = [&] {
    ends.clear();
    std::size_t i = 0;
    for (const Index size : sizes) {
      Index sum = 0;
      while (i < ranges.size() && sum < size) sum += ranges[i++].extent;
      if (sum != size) return false;
      ends.push_back(i);
    }
    return i == ranges.size();
  };
  if (!fit()) {
    ranges.clear();
    for (const Index size : sizes) ranges.push_back({size});
    fit();
  }
  ops::Factors f = ops::same_dims({x}, {});
  if (has.over(axis)) {
    // A ShardSpec has uneven shares of one dimension only.
    const bool other_shares = has.shared_dim() >= 0 && has.shared_dim() != axis;
    f.factors[static_cast<std::size_t>(axis)].whole =
        other_shares || std::ranges::any_of(ranges, [&](const Shares::Range& r) { return r.extent / r.unit < parts; });
    f.shares.resize(f.factors.size());
    f.shares[static_cast<std::size_t>(axis)].ranges = ranges;
    for (int d = 0; d < x.rank(); ++d)
      if (d != axis) f.shares[static_cast<std::size_t>(d)] = has.shares(d);
  }
  const ops::Placed p = ops::place("split", f, {x});
  const bool divided = p.out().over(axis) != 0;
  std::vector<Index> local;
  std::vector<ShardSpec::Ptr> specs;
  for (std::size_t i = 0, at = 0; i < sizes.size(); ++i) {
    Shape whole = ops::global_shape(x);
    whole[axis] = sizes[i];
    Shares shares;
    if (divided) {
      shares.ranges.assign(ranges.begin() + static_cast<std::ptrdiff_t>(at),
                           ranges.begin() + static_cast<std::ptrdiff_t>(ends[i]));
      if (shares.ranges.size() == 1 && shares.ranges[0].unit == 1) shares = {};
      at = ends[i];
    }
    const int dim = divided ? axis : std::max(0, p.out().shared_dim());
    if (!divided) shares = p.out().shares(dim);
    specs.push_back(p.out().with(whole, p.out().placements(), shares, dim));
    local.push_back(specs.back()->block()[axis]);
  }
  std::vector<Tensor> all = split(p[0], local, axis);
  for (std::size_t i = 0; p.out().divides() && i < all.size(); ++i) all[i] = all[i].with_shard_spec(specs[i]);
  return all;
}
}  // namespace

std::vector<Tensor> split(const Tensor& x, const std::vector<Index>& sizes, int axis) {
  check(x.defined(), "split", "the input is undefined");
  axis = ops::axis_of("split", axis, x.rank());
  if (x.shard_spec() && std::accumulate(sizes.begin(), sizes.end(), Index{0}) == ops::global_shape(x)[axis])
    return divided_split(x, sizes, axis);
  Index total = 0;
  for (Index size : sizes) {
    check(size >= 0, "split", "a size of {}", size);
    total += size;
  }
  check(total == x.dim(axis), "split", "sizes add up to {}, but axis {} of {} has {} elements", total, axis, x.shape(),
        x.dim(axis));
  std::vector<Tensor> parts;
  Shape at = zeros(x.rank());
  for (Index size : sizes) {
    Shape shape = x.shape();
    shape[axis] = size;
    parts.push_back(piece_of(x, axis, at, shape));
    at[axis] += size;
  }
  return parts;
}

Tensor squeeze(const Tensor& x, int axis) {
  check(x.defined(), "squeeze", "the input is undefined");
  axis = ops::axis_of("squeeze", axis, x.rank());
  check(x.global_shape()[axis] == 1, "squeeze", "axis {} of {} has {} elements, expected 1", axis, x.shape(),
        x.dim(axis));
  return x.reshape(x.global_shape().without(axis));
}

Tensor select(const Tensor& x, int axis, Index at) {
  check(x.defined(), "select", "the input is undefined");
  axis = ops::axis_of("select", axis, x.rank());
  const Index n = ops::global_shape(x)[axis], from = at < 0 ? at + n : at;
  check(from >= 0 && from < n, "select", "there is no element {} among {} along axis {} of {}", at, n, axis, x.shape());
  return squeeze(slice(x, axis, from, from + 1), axis);
}

std::vector<Tensor> unbind(const Tensor& x, int axis) {
  check(x.defined(), "unbind", "the input is undefined");
  check(axis >= -x.rank() && axis < x.rank(), "unbind", "there is no axis {} of {}", axis, ops::global_shape(x));
  const auto count = static_cast<std::size_t>(ops::global_shape(x)[axis]);
  std::vector<Tensor> parts = split(x, std::vector<Index>(count, 1), axis);
  for (Tensor& part : parts) part = squeeze(part, axis);
  return parts;
}

Tensor unsqueeze(const Tensor& x, int axis) {
  check(x.defined(), "unsqueeze", "the input is undefined");
  axis = ops::axis_of("unsqueeze", axis, x.rank() + 1);
  Shape shape;
  for (int i = 0; i <= x.rank(); ++i) {
    if (i == axis) shape.push_back(1);
    if (i < x.rank()) shape.push_back(x.global_shape()[i]);
  }
  return x.reshape(shape);
}

Tensor stack(const std::vector<Tensor>& parts, int axis) {
  check(!parts.empty() && parts[0], "stack", "got no parts, expected at least one");
  std::vector<Tensor> rows;
  for (const Tensor& part : parts) {
    check(part.defined() && part.global_shape() == parts[0].global_shape(), "stack",
          "parts are {} and {}: their shapes must be equal", parts[0].shape(), part ? part.shape() : Shape{});
    rows.push_back(unsqueeze(part, axis));
  }
  return concat(rows, axis);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  check(x.defined(), "expand", "the input is undefined");
  if (x.shape() == shape) return x;
  if (x.shard_spec()) {
    ops::Factors f{.result = shape};
    for (int d = 0; d < shape.rank(); ++d) {
      f.factors.push_back({.extent = shape[d]});
      f.out.push_back({d});
    }
    f.in.emplace_back();
    const int before = shape.rank() - x.rank();
    for (int d = 0; d < x.rank(); ++d)
      f.in[0].push_back(ops::global_shape(x)[d] == 1 ? ops::Factors::Dim{} : ops::Factors::Dim{d + before});
    const ops::Placed p = ops::place("expand", f, {x});
    return p.put(expand(p[0], p.out().block()));
  }
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  launch<kernel::Expand>(y, x);
  if (!needs_record("expand", y, {&x})) return y;
  return record("expand", std::move(y), {x}, shape, ops::twice([](const Tensor& dy, Gradients& g) {
                  if (g.records()) return ops::give_recorded(g, 0, [&] { return dy; });
                  write_grad(g, 0, [&](const Tensor& dx) {
                    if (dy.numel() == 0) return launch<kernel::Fill>(dx, 0.0);
                    ops::sum_to(dx, dy);
                  });
                }));
}

Tensor transpose(const Tensor& x, int a, int b) {
  check(x.defined(), "transpose", "the input is undefined");
  Shape order = zeros(x.rank());
  for (int i = 0; i < x.rank(); ++i) order[i] = i;
  std::swap(order[ops::axis_of("transpose", a, x.rank())], order[ops::axis_of("transpose", b, x.rank())]);
  return permute(x, order);
}

Tensor pad(const Tensor& x, const Shape& begin, const Shape& end, double value) {
  check(x.defined(), "pad", "the input is undefined");
  check(begin.rank() == x.rank() && end.rank() == x.rank(), "pad",
        "input is {}, begin {} and end {} must have its rank", x.shape(), begin, end);
  if (x.shard_spec()) {
    std::vector<int> whole;
    for (int d = 0; d < x.rank(); ++d)
      if (begin[d] != 0 || end[d] != 0) whole.push_back(d);
    ops::Factors f = ops::same_dims({x}, whole);
    for (const int d : whole) f.result[d] += begin[d] + end[d];
    const ops::Placed p = ops::place("pad", f, {x});
    return p.put(pad(p[0], begin, end, value));
  }
  Shape shape = x.shape();
  for (int i = 0; i < shape.rank(); ++i) {
    check(begin[i] >= 0 && end[i] >= 0, "pad", "begin {} and end {} must not be negative", begin, end);
    shape[i] += begin[i] + end[i];
  }
  Tensor y = Tensor::full(shape, value, x.dtype(), x.device());
  copy_box(y, begin, x, zeros(x.rank()), x.shape());
  if (!needs_record("pad", y, {&x})) return y;
  return record("pad", std::move(y), {x}, std::pair(begin, value), ops::twice([begin](const Tensor& dy, Gradients& g) {
                  if (g.records()) {
                    Tensor dx = dy;
                    const Shape shape = g.input(0).shape;
                    for (int i = 0; i < shape.rank(); ++i)
                      if (dx.dim(i) != shape[i]) dx = slice(dx, i, begin[i], begin[i] + shape[i]);
                    return g.set_grad(0, dx);
                  }
                  write_grad(g, 0, [&](const Tensor& dx) { copy_box(dx, zeros(dy.rank()), dy, begin, dx.shape()); });
                }));
}

Tensor pad(const Tensor& x, const Shape& begin, const Shape& end, PadMode mode) {
  check(x.defined() && begin.rank() == x.rank() && end.rank() == x.rank(), "pad",
        "input is {}, begin {} and end {} must have its rank", x ? x.shape() : Shape{}, begin, end);
  Tensor y = x;
  for (int i = 0; i < x.rank(); ++i) {
    if (begin[i] == 0 && end[i] == 0) continue;
    const Index n = ops::global_shape(x)[i], most = mode == PadMode::circular  ? n
                                                    : mode == PadMode::reflect ? n - 1
                                                    : n > 0                    ? begin[i] + end[i]
                                                                               : 0;
    check(begin[i] >= 0 && end[i] >= 0 && std::max(begin[i], end[i]) <= most, "pad",
          "padding is {} before and {} after axis {} of {}, expected at most {}", begin[i], end[i], i, x.shape(), most);
    y = rearranged(y, i, begin[i] + n + end[i], [=, first = begin[i]](Index k) {
      const Index at = k - first;
      if (mode == PadMode::replicate) return std::clamp<Index>(at, 0, n - 1);
      if (mode == PadMode::circular) return (at + n) % n;
      return at < 0 ? -at : at >= n ? 2 * (n - 1) - at : at;
    });
  }
  return y;
}

namespace {
/// take() of operands that ranks divide. Of a weight along axis 0 each rank takes the rows that it has, and zeros for
/// the others; the results are added (vocabulary parallelism: Megatron-LM, arXiv 1909.08053, section 3).
Tensor divided_take(const Tensor& x, const Tensor& ids, int axis) {
  const bool by_rows = axis == 0 && x.shard_spec() && x.shard_spec()->weight();
  const Shape &all = ops::global_shape(x), &few = ops::global_shape(ids);
  ops::Factors f;
  const auto factor = [&](Index extent) {
    f.factors.push_back({.extent = extent});
    return ops::Factors::Dim{static_cast<int>(f.factors.size()) - 1};
  };
  f.in.resize(2);
  for (int d = 0; d < all.rank(); ++d) f.in[0].push_back(factor(all[d]));
  for (int d = 0; d < few.rank(); ++d) f.in[1].push_back(factor(few[d]));
  auto& from = f.factors[static_cast<std::size_t>(f.in[0][static_cast<std::size_t>(axis)][0])];
  from.whole = !by_rows;
  from.sums = by_rows;
  for (int d = 0; d < all.rank(); ++d) {
    if (d != axis) {
      f.out.push_back(f.in[0][static_cast<std::size_t>(d)]);
      f.result.push_back(all[d]);
      continue;
    }
    f.out.insert(f.out.end(), f.in[1].begin(), f.in[1].end());
    for (const Index extent : few) f.result.push_back(extent);
  }
  const ops::Placed p = ops::place("take", f, {x, ids});
  if (p.sum() == 0) return p.put(take(p[0], p[1], axis));
  const Box mine = p.spec(0).box();
  const Tensor at = p[1] - static_cast<double>(mine.at[0]);
  const Mask here = logical_and(at >= 0, at < static_cast<double>(mine.size[0]));
  // Ids that no rank has stay as they are given: take() refuses them by these numbers.
  const Mask known = logical_and(p[1] >= 0, p[1] < static_cast<double>(all[0]));
  const Tensor y = take(p[0], where(known, where(here, at, 0), p[1]), axis);
  Shape rows = here.shape();
  for (int d = 1; d < all.rank(); ++d) rows.push_back(1);
  return p.put(where(here.reshape(rows), y, 0));
}
}  // namespace

namespace {
/// take() without divided operands; type: of the result.
Tensor take_as(const Tensor& x, const Tensor& ids, int axis, DType type) {
  Shape shape;
  for (int i = 0; i < axis; ++i) shape.push_back(x.dim(i));
  for (const Index extent : ids.shape()) shape.push_back(extent);
  for (int i = axis + 1; i < x.rank(); ++i) shape.push_back(x.dim(i));
  const Index outer = x.shape().product(0, axis), inner = x.shape().product(axis + 1, x.rank());
  const Shape few{outer, ids.numel(), inner}, all{outer, x.dim(axis), inner};
  Tensor y = Tensor::empty(shape, type, x.device());
  launch<kernel::Take>(ops::shaped(y, few), ops::shaped(x, all), ids);
  if (axis == 0) y.impl()->batch = take_batch(x.impl()->batch, x.dim(0), ids);
  if (!needs_record("take", y, {&x, &ids})) return y;
  return record(
      "take", std::move(y), {x, ids}, axis,
      ops::twice([few, all, ids = SavedTensor(ids)](const Tensor& dy, Gradients& g) {
        if (!g.needs_grad(0)) return;
        if (g.records()) {
          const auto [shape, type, device] = g.input(0);
          const Tensor places = expand(ids.get().reshape({1, few[1], 1}), few);
          return g.set_grad(
              0, scatter_add(Tensor::zeros(all, type, device), places, dy.to(type).reshape(few), 1).reshape(shape));
        }
        const Gradients::Target to = g.grad_buffer(0);
        if (!to.accumulate) launch<kernel::Fill>(to.tensor, 0.0);
        if (dy.numel() > 0) launch<kernel::TakeBackward>(ops::shaped(to.tensor, all), ops::shaped(dy, few), ids);
      }));
}
}  // namespace

Tensor ops::take_rows(const Tensor& x, const Tensor& ids, DType type) {
  const bool rounds = x && ids && x.dtype() == DType::f32 && is_half(type) && ids.dtype() == DType::i64;
  if (!rounds || ops::is_traced() || ops::is_divided({&x, &ids})) return take(x, ids).to(type);
  return take_as(x, ids, 0, type);
}

Tensor take(const Tensor& x, const Tensor& ids, int axis) {
  check(x.defined() && ids.defined(), "take", "an input is undefined");
  check(ids.dtype() == DType::i64, "take", "ids must be i64, got {}", ids.dtype());
  axis = ops::axis_of("take", axis, x.rank());
  if (ops::is_divided({&x, &ids})) return divided_take(x, ids, axis);
  return take_as(x, ids, axis, x.dtype());
}

Tensor slice(const Tensor& x, int axis, Index from, Index to, Index step) {
  check(x.defined(), "slice", "the input is undefined");
  check(step >= 1, "slice", "the step is {}, expected at least 1 (flip() reverses)", step);
  axis = ops::axis_of("slice", axis, x.rank());
  const Index extent = ops::global_shape(x)[axis];
  const auto place = [extent](Index i) { return std::clamp<Index>(i < 0 ? i + extent : i, 0, extent); };
  from = place(from);
  to = std::max(place(to), from);
  if (step > 1) return rearranged(x, axis, (to - from + step - 1) / step, [=](Index i) { return from + i * step; });
  if (axis == 0) return x.rows(from, to);
  if (x.shard_spec()) {
    ops::Factors f = ops::same_dims({x}, {axis});
    f.result[axis] = to - from;
    const ops::Placed p = ops::place("slice", f, {x});
    return p.put(slice(p[0], axis, from, to));
  }
  Shape shape = x.shape(), at = zeros(x.rank());
  shape[axis] = to - from;
  at[axis] = from;
  return piece_of(x, axis, at, shape);
}

Tensor flip(const Tensor& x, const std::vector<int>& axes) {
  Tensor y = x;
  for (const int axis : axes)
    y = rearranged(
        y, axis, ops::global_shape(y)[ops::axis_of("flip", axis, y.rank())],
        [last = ops::global_shape(y)[ops::axis_of("flip", axis, y.rank())] - 1](Index i) { return last - i; });
  return y;
}

Tensor roll(const Tensor& x, Index shift, int axis) {
  const Index extent = ops::global_shape(x)[ops::axis_of("roll", axis, x.rank())];
  return rearranged(x, axis, extent, [=](Index i) { return ((i - shift) % extent + extent) % extent; });
}

Tensor repeat(const Tensor& x, const Shape& times) {
  check(x.defined() && times.rank() == x.rank(), "repeat", "got {} for {}, expected one number per axis", times,
        x ? x.shape() : Shape{});
  Tensor y = x;
  for (int i = 0; i < x.rank(); ++i) {
    check(times[i] >= 0, "repeat", "{} times", times[i]);
    const Index extent = ops::global_shape(x)[i];
    if (times[i] != 1) y = rearranged(y, i, times[i] * extent, [extent](Index k) { return k % extent; });
  }
  return y;
}

Tensor permute(const Tensor& x, const Shape& order) {
  check(x.defined(), "permute", "the input is undefined");
  Shape shape, back = zeros(x.rank());
  unsigned seen = 0;
  for (Index from : order)
    if (from >= 0 && from < x.rank()) seen |= 1u << from;
  check(order.rank() == x.rank() && seen == (1u << x.rank()) - 1, "permute",
        "order {} is no permutation of the axes of {}", order, x.shape());
  for (int i = 0; i < x.rank(); ++i) {
    shape.push_back(x.dim(static_cast<int>(order[i])));
    back[static_cast<int>(order[i])] = i;
  }
  if (x.shard_spec()) {
    ops::Factors f = ops::same_dims({x}, {});
    for (int d = 0; d < x.rank(); ++d) {
      const auto from = static_cast<int>(order[d]);
      f.out[static_cast<std::size_t>(d)] = {from};
      f.result[d] = ops::global_shape(x)[from];
    }
    const ops::Placed p = ops::place("permute", f, {x});
    return p.put(permute(p[0], order));
  }
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  launch<kernel::Permute>(y, x, order);
  if (!needs_record("permute", y, {&x})) return y;
  return record("permute", std::move(y), {x}, order, ops::twice([back](const Tensor& dy, Gradients& g) {
                  if (g.records()) return g.set_grad(0, permute(dy, back));
                  write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::Permute>(dx, dy, back); });
                }));
}

Tensor flatten(const Tensor& x) {
  check(x.defined() && x.rank() >= 2, "flatten", "expected [N, spatial..., C], got {}", x ? x.shape() : Shape{});
  if (x.rank() > 2 && x.shard_spec()) {
    ops::Factors f = ops::factors_of({.op = "flatten", .dims = "n s.. c -> n", .whole = "s"}, {x});
    f.out.push_back(f.in[0].back());  // C outermost
    for (int d = 1; d < x.rank() - 1; ++d) f.out[1].push_back(f.in[0][static_cast<std::size_t>(d)][0]);
    f.result.push_back(ops::global_shape(x).product(1, x.rank()));
    const ops::Placed p = ops::place("flatten", f, {x});
    return p.put(flatten(p[0]));
  }
  const Index n = x.dim(0), c = x.dim(-1), cells = x.shape().product(1, x.rank() - 1);
  if (x.rank() == 2) return x;
  if (cells == 1 || c == 1) return x.reshape({n, c * cells});
  // One transposition per image: [cells, C] to [C, cells].
  const Shape here{n, cells, c}, there{n, c, cells}, order{0, 2, 1};
  Tensor y = Tensor::empty({n, c * cells}, x.dtype(), x.device());
  launch<kernel::Permute>(ops::shaped(y, there), ops::shaped(x, here), order);
  if (!needs_record("flatten", y, {&x})) return y;
  return record("flatten", std::move(y), {x}, ops::twice([here, there, order](const Tensor& dy, Gradients& g) {
                  if (g.records()) return g.set_grad(0, permute(dy.reshape(there), order).reshape(g.input(0).shape));
                  write_grad(g, 0, [&](const Tensor& dx) {
                    launch<kernel::Permute>(ops::shaped(dx, here), ops::shaped(dy, there), order);
                  });
                }));
}

}  // namespace trireme
