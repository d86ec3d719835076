// Ops that compare, choose and order.
#include "framework/ops/select.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "kernels/contracts/select.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

constexpr auto not_differentiable = [](const Tensor&, Gradients&) {};

/// An operand of a kernel that takes y's shape or one element.
Tensor fitted(const Tensor& t, const Shape& shape) {
  return t.shape() == shape || t.numel() == 1 ? t : expand(t, shape);
}
Mask compared(const char* op, const Tensor& a, const Tensor& b, Comparison how) {
  ops::check_same_type(op, a, b);
  if (ops::is_divided({&a, &b})) {
    const ops::Placed p = ops::place(op, ops::elementwise(op, {a, b}), {a, b});
    return p.put(compared(op, p[0], p[1], how));
  }
  const Shape shape = ops::broadcast(op, a.shape(), b.shape());
  const Tensor y = Tensor::empty(shape, DType::boolean, a.device());
  launch<kernel::Compare>(y, fitted(a.detach(), shape), fitted(b.detach(), shape), how);
  if (!needs_record("compare", y, {&a, &b})) return y;
  return record("compare", y, {a, b}, how, not_differentiable);
}
Mask compared(const char* op, const Tensor& x, double number, Comparison how) {
  return compared(op, x, ops::number_like(op, x, number), how);
}
Tensor truth(const Tensor& x) { return x.dtype() == DType::boolean ? x : ne(x, 0); }
template <class F>
Mask joined(const char* op, const Tensor& a, const Tensor& b) {
  check(a && b, op, "an operand is undefined");
  const Tensor p = truth(a), q = truth(b);
  if (ops::is_divided({&p, &q})) {
    const ops::Placed placed = ops::place(op, ops::elementwise(op, {p, q}), {p, q});
    return placed.put(joined<F>(op, placed[0], placed[1]));
  }
  const Tensor y = Tensor::empty(ops::broadcast(op, p.shape(), q.shape()), DType::boolean, p.device());
  ops::zip_into<F>(y, p, q);
  if (!needs_record(op, y, {&p, &q})) return y;
  return record(op, y, {p, q}, not_differentiable);
}

/// x as [outer, extent, inner] around an axis.
Shape around(const Tensor& x, int axis) {
  return {x.shape().product(0, axis), x.dim(axis), x.shape().product(axis + 1, x.rank())};
}
Tensor with_axis_last(const Tensor& x, int axis) { return axis == x.rank() - 1 ? x : transpose(x, axis, -1); }

/// Places [M, N] at or below a diagonal, or the others.
Tensor triangle(const Tensor& x, Index diagonal, bool lower) {
  check(x.defined() && x.rank() >= 2, lower ? "tril" : "triu", "got {}, expected at least two axes",
        x ? x.shape() : Shape{});
  if (x.rank() == 2) ops::refuse_part_of_batch(lower ? "tril" : "triu", x, 0);
  if (x.shard_spec()) {
    const ops::Placed p = ops::place(lower ? "tril" : "triu", ops::same_dims({x}, {x.rank() - 2, x.rank() - 1}), {x});
    return p.put(triangle(p[0], diagonal, lower));
  }
  const auto counted = [&](const Shape& shape) {
    const Tensor t = Tensor::empty(shape, DType::i64);
    for (Index i = 0; i < t.numel(); ++i) t.data<Index>()[i] = i;
    return t.to(x.device());
  };
  return ops::as_one_op(lower ? "tril" : "triu", {&x}, diagonal, [&] {
    const Tensor row = counted({x.dim(-2), 1}), column = counted({x.dim(-1)});
    const Mask kept =
        lower ? column - row <= static_cast<double>(diagonal) : column - row >= static_cast<double>(diagonal);
    return where(kept, x, 0);
  });
}

}  // namespace

Mask eq(const Tensor& a, const Tensor& b) { return compared("eq", a, b, Comparison::equal); }
Mask ne(const Tensor& a, const Tensor& b) { return compared("ne", a, b, Comparison::not_equal); }
Mask lt(const Tensor& a, const Tensor& b) { return compared("lt", a, b, Comparison::less); }
Mask le(const Tensor& a, const Tensor& b) { return compared("le", a, b, Comparison::less_equal); }
Mask eq(const Tensor& x, double number) { return compared("eq", x, number, Comparison::equal); }
Mask ne(const Tensor& x, double number) { return compared("ne", x, number, Comparison::not_equal); }
Mask lt(const Tensor& x, double number) { return compared("lt", x, number, Comparison::less); }
Mask le(const Tensor& x, double number) { return compared("le", x, number, Comparison::less_equal); }
Mask gt(const Tensor& x, double number) { return lt(ops::number_like("gt", x, number), x); }
Mask ge(const Tensor& x, double number) { return le(ops::number_like("ge", x, number), x); }

Mask logical_and(const Tensor& a, const Tensor& b) { return joined<pointwise::Minimum>("logical_and", a, b); }
Mask logical_or(const Tensor& a, const Tensor& b) { return joined<pointwise::Maximum>("logical_or", a, b); }
Mask logical_xor(const Tensor& a, const Tensor& b) { return ne(truth(a), truth(b)); }
Mask logical_not(const Tensor& x) { return eq(x, 0); }
Mask isnan(const Tensor& x) { return ne(x, x); }
Mask isfinite(const Tensor& x) { return abs(x) < std::numeric_limits<double>::infinity(); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const char* op = "where";
  ops::check_same_type(op, a, b);
  check(condition && condition.dtype() == DType::boolean, op, "the condition is {}, expected bool",
        condition ? name_of(condition.dtype()) : "undefined");
  if (ops::is_divided({&a, &b, &condition})) {
    const ops::Placed p = ops::place(op, ops::elementwise(op, {a, b, condition}), {a, b, condition});
    return p.put(where(p[2], p[0], p[1]));
  }
  const Shape shape = ops::broadcast(op, ops::broadcast(op, a.shape(), b.shape()), condition.shape());
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  launch<kernel::Where>(y, fitted(condition, shape), fitted(a.detach(), shape), fitted(b.detach(), shape));
  if (!needs_record(op, y, {&a, &b, &condition})) return y;
  return record(
      op, std::move(y), {condition, a, b},
      ops::twice([condition = SavedTensor(condition), sa = a.shape(), sb = b.shape()](const Tensor& dy, Gradients& g) {
        if (g.records()) {
          ops::give_recorded(g, 1, [&] { return where(condition.get(), dy, 0); });
          return ops::give_recorded(g, 2, [&] { return where(condition.get(), 0, dy); });
        }
        const Tensor zero = Tensor::scalar(0, dy.dtype(), dy.device());
        const Tensor chosen = fitted(condition, dy.shape());
        const auto give = [&](int i, const Shape& shape, const Tensor& yes, const Tensor& no) {
          write_grad(g, i, [&](const Tensor& dx) {
            const Tensor full = shape == dy.shape() ? dx : Tensor::like(dy);
            launch<kernel::Where>(full, chosen, yes, no);
            if (full.id() != dx.id()) ops::sum_to(dx, full);
          });
        };
        give(1, sa, dy, zero);
        give(2, sb, zero, dy);
      }));
}
Tensor where(const Tensor& condition, const Tensor& a, double b) {
  return where(condition, a, ops::number_like("where", a, b));
}
Tensor where(const Tensor& condition, double a, const Tensor& b) {
  return where(condition, ops::number_like("where", b, a), b);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) { return where(mask, value, x); }
Tensor tril(const Tensor& x, Index diagonal) { return triangle(x, diagonal, true); }
Tensor triu(const Tensor& x, Index diagonal) { return triangle(x, diagonal, false); }

Tensor gather(const Tensor& x, const Tensor& ids, int axis) {
  const char* op = "gather";
  check(x && ids, op, "an input is undefined");
  axis = ops::axis_of(op, axis, x.rank());
  if (ops::is_divided({&x, &ids})) {
    ops::Factors f = ops::same_dims({x, ids}, {axis});
    f.result = ops::global_shape(ids);
    const ops::Placed p = ops::place(op, f, {x, ids});
    return p.put(gather(p[0], p[1], axis));
  }
  Shape expected = x.shape();
  if (ids.rank() == x.rank()) expected[axis] = ids.dim(axis);
  check(ids.dtype() == DType::i64 && ids.shape() == expected, op, "got ids {} {} for {}, expected i64 {}", ids.dtype(),
        ids.shape(), x.shape(), expected);
  const Shape few = around(ids, axis), all = around(x, axis);
  Tensor y = Tensor::empty(ids.shape(), x.dtype(), x.device());
  launch<kernel::Gather>(ops::shaped(y, few), ops::shaped(x, all), ops::shaped(ids, few));
  if (!needs_record(op, y, {&x, &ids})) return y;
  return record(
      op, std::move(y), {x, ids}, axis, ops::twice([few, all, ids = SavedTensor(ids)](const Tensor& dy, Gradients& g) {
        if (!g.needs_grad(0)) return;
        if (g.records()) {
          const Tensor zeros = Tensor::zeros(all, dy.dtype(), dy.device());
          return g.set_grad(0,
                            scatter_add(zeros, ids.get().reshape(few), dy.reshape(few), 1).reshape(g.input(0).shape));
        }
        const Gradients::Target to = g.grad_buffer(0);
        if (!to.accumulate) launch<kernel::Fill>(to.tensor, 0.0);
        if (dy.numel() > 0)
          launch<kernel::ScatterAdd>(ops::shaped(to.tensor, all), ops::shaped(dy, few), ops::shaped(ids, few));
      }));
}
Tensor scatter_add(const Tensor& x, const Tensor& ids, const Tensor& source, int axis) {
  const char* op = "scatter_add";
  ops::check_same_type(op, x, source);
  check(ids.defined(), op, "the ids are undefined");
  axis = ops::axis_of(op, axis, x.rank());
  if (ops::is_divided({&x, &ids, &source})) {
    const ops::Placed p = ops::place(op, ops::same_dims({x, ids, source}, {axis}), {x, ids, source});
    return p.put(scatter_add(p[0], p[1], p[2], axis));
  }
  Shape expected = x.shape();
  if (ids.rank() == x.rank()) expected[axis] = ids.dim(axis);
  check(ids.dtype() == DType::i64 && ids.shape() == expected && source.shape() == expected, op,
        "got ids {} {} and source {} for {}, expected {} for both, and i64 ids", ids.dtype(), ids.shape(),
        source.shape(), x.shape(), expected);
  const Shape few = around(ids, axis), all = around(x, axis);
  Tensor y = Tensor::like(x);
  copy_unnoted(y, x.detach());
  if (source.numel() > 0)
    launch<kernel::ScatterAdd>(ops::shaped(y, all), ops::shaped(source, few), ops::shaped(ids, few));
  if (!needs_record(op, y, {&x, &ids, &source})) return y;
  return record(op, std::move(y), {x, ids, source}, axis,
                ops::twice([few, all, ids = SavedTensor(ids)](const Tensor& dy, Gradients& g) {
                  g.set_grad(0, dy);
                  if (g.records())
                    return ops::give_recorded(g, 2, [&] {
                      return gather(dy.reshape(all), ids.get().reshape(few), 1).reshape(g.input(2).shape);
                    });
                  write_grad(g, 2, [&](const Tensor& dx) {
                    launch<kernel::Gather>(ops::shaped(dx, few), ops::shaped(dy, all), ops::shaped(ids, few));
                  });
                }));
}

Sorted topk(const Tensor& x, Index k, int axis, bool largest) {
  check(x.defined(), "topk", "the input is undefined");
  axis = ops::axis_of("topk", axis, x.rank());
  if (x.shard_spec()) {
    ops::Factors f = ops::same_dims({x}, {axis});
    f.result[axis] = k;
    const ops::Placed p = ops::place("topk", f, {x});
    const Sorted sorted = topk(p[0], k, axis, largest);
    return {p.put(sorted.values), p.put(sorted.index)};
  }
  check(k >= 0 && k <= ops::global_shape(x)[axis], "topk", "k is {}, expected at most the extent of axis {} of {}", k,
        axis, x.shape());
  ops::refuse_part_of_batch("topk", x, axis);
  const Tensor index = ops::as_one_op("topk", {&x}, std::pair(axis, largest), [&] {
    const Tensor rows = with_axis_last(x.detach(), axis);
    Shape shape = rows.shape();
    shape[-1] = k;
    const Tensor values = Tensor::empty(shape, x.dtype(), x.device()),
                 places = Tensor::empty(shape, DType::i64, x.device());
    const Index count = rows.shape().product(0, rows.rank() - 1);
    launch<kernel::Sort>(ops::shaped(values, {count, k}), ops::shaped(places, {count, k}),
                         ops::shaped(rows, {count, x.dim(axis)}), largest);
    needs_record("topk", places, {&x});  // keeps the batch
    return with_axis_last(places, axis);
  });
  return {gather(x, index, axis), index};
}
Sorted sort(const Tensor& x, int axis, bool descending) {
  return topk(x, ops::global_shape(x)[ops::axis_of("sort", axis, x.rank())], axis, descending);
}

Tensor argmax(const Tensor& x) {
  check(x.defined() && x.rank() >= 1 && x.dim(-1) > 0, "argmax",
        "got {}, expected at least one element along the last axis", x ? x.shape() : Shape{});
  if (x.shard_spec())
    return ops::on_blocks({.op = "argmax", .dims = "n.. c -> n..", .whole = "c"}, x,
                          [](const Tensor& t) { return argmax(t); });
  if (!is_float(x.dtype())) return squeeze(topk(x, 1).index, -1);
  Tensor index = Tensor::empty(x.shape().without(x.rank() - 1), DType::i64, x.device());
  launch<kernel::ArgMax>(index, x);
  if (!needs_record("argmax", index, {&x})) return index;
  return record("argmax", index, {x}, x.rank() - 1, not_differentiable);
}
Tensor argmax(const Tensor& x, int axis) {
  check(x.defined(), "argmax", "the input is undefined");
  axis = ops::axis_of("argmax", axis, x.rank());
  if (axis == x.rank() - 1) return argmax(x);
  return ops::as_one_op("argmax", {&x}, axis, [&] {
    return squeeze(transpose(unsqueeze(argmax(transpose(x, axis, -1)), -1), axis, -1), axis);
  });
}
Tensor argmin(const Tensor& x, int axis) {
  check(x.defined(), "argmin", "the input is undefined");
  axis = ops::axis_of("argmin", axis, x.rank());
  check(x.dim(axis) > 0, "argmin", "expected at least one element along axis {} of {}", axis, x.shape());
  return ops::as_one_op("argmin", {&x}, axis, [&] {
    const Mask nan = isnan(x);  // as in PyTorch, the first NaN is also the smallest
    const Tensor ordered = is_float(x.dtype()) ? where(nan, -std::numeric_limits<double>::infinity(), x) : x;
    return squeeze(topk(ordered, 1, axis, false).index, axis);
  });
}

Tensor cumsum(const Tensor& given, int axis) {
  check(given.defined(), "cumsum", "the input is undefined");
  axis = ops::axis_of("cumsum", axis, given.rank());
  const Tensor x = is_float(given.dtype()) ? given : given.to(DType::i64);
  if (x.shard_spec()) {
    const ops::Placed p = ops::place("cumsum", ops::same_dims({x}, {axis}), {x});
    return p.put(cumsum(p[0], axis));
  }
  const Shape shape = around(x, axis);
  ops::refuse_part_of_batch("cumsum", x, axis);
  Tensor y = Tensor::like(x);
  launch<kernel::Scan>(ops::shaped(y, shape), ops::shaped(x, shape), ScanOptions{});
  if (!needs_record("cumsum", y, {&x})) return y;
  return record("cumsum", std::move(y), {x}, axis, ops::twice([shape](const Tensor& dy, Gradients& g) {
                  if (g.records())
                    return g.set_grad(0, flip(cumsum(flip(dy.reshape(shape), {1}), 1), {1}).reshape(g.input(0).shape));
                  write_grad(g, 0, [&](const Tensor& dx) {
                    launch<kernel::Scan>(ops::shaped(dx, shape), ops::shaped(dy, shape), ScanOptions{.reverse = true});
                  });
                }));
}

namespace {
Tensor product(Tensor x, const std::vector<int>& axes, bool keep) {
  if (x.shard_spec()) {
    std::vector<int> whole;
    for (const int axis : axes) whole.push_back(ops::axis_of("prod", axis, x.rank()));
    ops::Factors f = ops::same_dims({x}, whole);
    Shape kept;
    std::vector<ops::Factors::Dim> out;
    for (int d = 0; d < x.rank(); ++d) {
      const bool cut = std::ranges::count(whole, d) > 0;
      if (cut && !keep) continue;
      kept.push_back(cut ? 1 : f.result[d]);
      out.push_back(cut ? ops::Factors::Dim{} : f.out[static_cast<std::size_t>(d)]);
    }
    f.result = kept;
    f.out = out;
    const ops::Placed p = ops::place("prod", f, {x});
    return p.put(product(p[0], axes, keep));
  }
  Shape order, kept_shape, with_ones = x.shape();
  std::vector<bool> cut(static_cast<std::size_t>(x.rank()));
  for (const int axis : axes) cut[static_cast<std::size_t>(ops::axis_of("prod", axis, x.rank()))] = true;
  Index factors = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (cut[static_cast<std::size_t>(i)]) {
      factors *= x.dim(i);
      with_ones[i] = 1;
      continue;
    }
    order.push_back(i);
    kept_shape.push_back(x.dim(i));
  }
  for (int i = 0; i < x.rank(); ++i)
    if (cut[static_cast<std::size_t>(i)]) order.push_back(i);
  const Shape out = keep ? with_ones : kept_shape;
  if (factors == 0) return Tensor::full(out, 1, x.dtype(), x.device());
  x = permute(x, order);
  const Shape rows{kept_shape.numel(), factors, 1};
  const Tensor all = Tensor::like(x);
  launch<kernel::Scan>(ops::shaped(all, rows), ops::shaped(x, rows), ScanOptions{.kind = ScanKind::product});
  Tensor y = slice(all.reshape({rows[0], factors}), 1, factors - 1, factors).reshape(out);
  if (!needs_record("prod", y, {&x})) return y;
  return record("prod", std::move(y), {x}, [x = SavedTensor(x), rows](const Tensor& dy, Gradients& g) {
    // The product of all factors before times the product of all factors after: correct for zeros too.
    write_grad(g, 0, [&](const Tensor& dx) {
      const Tensor before = Tensor::empty(rows, dy.dtype(), dy.device()), behind = Tensor::like(before);
      launch<kernel::Scan>(before, ops::shaped(x, rows), ScanOptions{.kind = ScanKind::product, .exclusive = true});
      launch<kernel::Scan>(behind, ops::shaped(x, rows),
                           ScanOptions{.kind = ScanKind::product, .reverse = true, .exclusive = true});
      ops::zip_into<pointwise::Mul>(before, before, behind);
      launch<kernel::Zip<pointwise::Mul>>(ops::shaped(dx, rows), before, ops::shaped(dy, {rows[0], 1, 1}),
                                          pointwise::Mul{});
    });
  });
}
}  // namespace

Tensor prod(const Tensor& given, const std::vector<int>& axes, bool keep) {
  check(given.defined(), "prod", "the input is undefined");
  const Tensor x = is_float(given.dtype()) ? given : given.to(DType::i64);
  return ops::as_one_op("prod", {&x}, ops::ReducedAxes{axes, keep}, [&] { return product(x, axes, keep); });
}

Mask any(const Tensor& x, const std::vector<int>& axes, bool keep) { return sum(truth(x), axes, keep) > 0; }
Mask all(const Tensor& x, const std::vector<int>& axes, bool keep) { return eq(sum(logical_not(x), axes, keep), 0); }
bool any(const Tensor& x) { return sum(truth(x)).item() > 0; }
bool all(const Tensor& x) { return sum(logical_not(x)).item() == 0; }

}  // namespace trireme
