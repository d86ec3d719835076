// Matrix products and the fully connected layer.
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "kernels/plans/matmul_job.h"

namespace trireme {
namespace {

/// Writes the product into input i's gradient, adding in the kernel where it must be added.
template <class A, class B>
void give_product(Gradients& g, int i, const A& a, const B& b, bool transpose_a, bool transpose_b) {
  if (!g.needs_grad(i)) return;
  const Gradients::Target to = g.grad_buffer(i);
  if (a.shape().numel() == 0 || b.shape().numel() == 0) {
    if (!to.accumulate) launch<kernel::Fill>(to.tensor, 0.0);
    return;
  }
  launch<kernel::MatMul>(to.tensor, a, b, MatMulOptions{transpose_a, transpose_b, to.accumulate});
}

/// The extents in front of the last two axes, broadcast.
Shape batch_of(const Shape& a, const Shape& b) {
  Shape all;
  const int rank = std::max(a.rank(), b.rank()) - 2;
  for (int i = 0; i < rank; ++i) {
    const int from_end = rank + 2 - i;
    const Index ea = from_end > a.rank() ? 1 : a[-from_end], eb = from_end > b.rank() ? 1 : b[-from_end];
    check(ea == eb || ea == 1 || eb == 1, "matmul", "{} and {}: the axes in front of the matrices do not broadcast", a,
          b);
    all.push_back(ea == 1 ? eb : ea);
  }
  return all;
}
/// [batch..., rows, columns] as [B, rows, columns].
Tensor as_batch(const Tensor& x, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(x.global_shape()[-2]);
  shape.push_back(x.global_shape()[-1]);
  return expand(x, shape).reshape({batch.numel(), shape[-2], shape[-1]});
}
/// Of vectors, of operands of different ranks and of more than three axes.
Tensor matmul_of_any(const Tensor& a, const Tensor& b, const MatMulOptions& o) {
  check(a.rank() > 0 && b.rank() > 0, "matmul",
        "operands are {} and {}, expected at least one axis each: use mul() for scalars", a.shape(), b.shape());
  if (a.rank() == 1) {
    check(!o.transpose_a, "matmul", "a vector cannot be transposed");
    return squeeze(matmul(unsqueeze(a, 0), b, o), b.rank() == 1 ? 0 : -2);
  }
  if (b.rank() == 1) {
    check(!o.transpose_b, "matmul", "a vector cannot be transposed");
    return squeeze(matmul(a, unsqueeze(b, 1), o), -1);
  }
  if (b.rank() == 2 && !o.transpose_a) {  // one product for all of a's rows
    const Tensor c = matmul(a.reshape({a.global_shape().product(0, a.rank() - 1), a.global_shape()[-1]}), b, o);
    Shape shape = a.global_shape();
    shape[shape.rank() - 1] = c.global_shape()[-1];
    return c.reshape(shape);
  }
  const Shape batch = batch_of(a.global_shape(), b.global_shape());
  const Tensor c = matmul(as_batch(a, batch), as_batch(b, batch), o);
  Shape shape = batch;
  shape.push_back(c.global_shape()[-2]);
  shape.push_back(c.global_shape()[-1]);
  return c.reshape(shape);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, const MatMulOptions& o) {
  ops::check_same_type("matmul", a, b);
  check(!o.accumulate, "matmul", "MatMulOptions::accumulate is for kernels only: use add()");
  if (ops::is_divided({&a, &b}) && a.rank() >= 2 && b.rank() >= 2) {
    const Shape &sa = ops::global_shape(a), &sb = ops::global_shape(b);
    const Index m = sa[o.transpose_a ? -1 : -2], k = sa[o.transpose_a ? -2 : -1], n = sb[o.transpose_b ? -2 : -1];
    ops::Factors f{
        .factors = {{.extent = m}, {.extent = k, .sums = true}, {.extent = n}},
        .in = {{{o.transpose_a ? 1 : 0}, {o.transpose_a ? 0 : 1}}, {{o.transpose_b ? 2 : 1}, {o.transpose_b ? 1 : 2}}},
        .out = {{0}, {2}},
        .result = {m, n}};
    // Batches of matrices broadcast in front.
    Shape extents = batch_of(sa, sb);
    const int batches = extents.rank();
    std::vector<ops::Factors::Dim> front;
    for (const Index extent : extents) {
      f.factors.push_back({.extent = extent});
      front.push_back({static_cast<int>(f.factors.size()) - 1});
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const Shape& s = i == 0 ? sa : sb;
      std::vector<ops::Factors::Dim> own;
      for (int d = batches - (s.rank() - 2); d < batches; ++d)
        own.push_back(s[d - batches + s.rank() - 2] == extents[d] ? front[static_cast<std::size_t>(d)]
                                                                  : ops::Factors::Dim{});
      f.in[i].insert(f.in[i].begin(), own.begin(), own.end());
    }
    f.out.insert(f.out.begin(), front.begin(), front.end());
    for (const Index n : f.result) extents.push_back(n);
    f.result = extents;
    const ops::Placed p = ops::place("matmul", f, {a, b});
    return p.put(matmul(p[0], p[1], o));
  }
  const bool plain = a.rank() == b.rank() && (a.rank() == 2 || (a.rank() == 3 && a.dim(0) == b.dim(0)));
  if (!plain) return ops::as_one_op("matmul", {&a, &b}, o, [&] { return matmul_of_any(a, b, o); });
  const bool ta = o.transpose_a, tb = o.transpose_b;
  const Shape shape = matmul_output_shape(a.shape(), b.shape(), o, "matmul");
  if (a.rank() == 2 && (ta || tb) && a.dim(0) == b.dim(0) && a.batch() &&
      b.batch()) {  // every row of a is used with every row of b
    ops::refuse_part_of_batch("matmul", a, 0);
    ops::refuse_part_of_batch("matmul", b, 0);
  }
  Tensor c = Tensor::empty(shape, a.dtype(), a.device());
  if (a.dim(ta ? -2 : -1) == 0)
    launch<kernel::Fill>(c, 0.0);
  else
    launch<kernel::MatMul>(c, a, b, o);
  if (!needs_record("matmul", c, {&a, &b})) return c;
  return record(
      "matmul", std::move(c), {a, b}, o,
      ops::twice([a = SavedTensor(a), b = SavedTensor(b), ta, tb](const Tensor& dc, Gradients& g) {
        if (g.records()) {
          const Tensor &x = a, &w = b;
          ops::give_recorded(g, 0, [&] {
            return ta ? matmul(w, dc, {.transpose_a = tb, .transpose_b = true}) : matmul(dc, w, {.transpose_b = !tb});
          });
          return ops::give_recorded(g, 1, [&] {
            return tb ? matmul(dc, x, {.transpose_a = true, .transpose_b = ta}) : matmul(x, dc, {.transpose_a = !ta});
          });
        }
        // c = op(a) op(b): d op(a) = dc op(b)^T, d op(b) = op(a)^T dc, each transposed back where op
        // transposes.
        if (ta)
          give_product(g, 0, b, dc, tb, true);
        else
          give_product(g, 0, dc, b, false, !tb);
        if (tb)
          give_product(g, 1, dc, a, true, ta);
        else
          give_product(g, 1, a, dc, !ta, false);
      }));
}

namespace {
/// Cut over o: column-parallel; over k: row-parallel (Shoeybi et al., Megatron-LM, arXiv 1909.08053).
constexpr ops::OpRule linear_rule{.op = "linear", .dims = "n.. k, o k, o -> n.. o", .sums = "k", .late = 2};
}  // namespace

Tensor linear(const Tensor& x, const Tensor& w_given, const Tensor& bias_given, bool relu) {
  ops::check_float("linear", x);
  if (ops::is_divided({&x, &w_given, &bias_given})) {
    const ops::Placed p = ops::place(linear_rule, {x, w_given, bias_given});
    if (p.sum() == 0) return p.put(linear(p[0], p[1], p[2], relu));
    Tensor y = p.put(linear(p[0], p[1]));
    if (bias_given) y = add(y, bias_given.to(y.dtype()));
    return relu ? trireme::relu(y) : y;
  }
  check(x.rank() >= 1 && w_given && w_given.rank() == 2 && x.dim(-1) == w_given.dim(1), "linear",
        "input {} does not fit the weight {}: its last extent must be the weight's second", x.shape(),
        w_given ? w_given.shape() : Shape{});
  const Index out = w_given.dim(0);
  ops::check_channels("linear", "bias", bias_given, out, true);
  const auto [w, bias, leaf_w, leaf_bias] = ops::Weights(w_given, bias_given, x.dtype());
  const Shape in_rows = ops::as_rows(x.shape()), out_rows{in_rows[0], out};
  Shape shape = x.shape();
  shape[-1] = out;
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  launch<kernel::Linear>(ops::shaped(y, out_rows), ops::shaped(x, in_rows), w, bias, relu);
  if (!needs_record("linear", y, {&x, &leaf_w, &leaf_bias})) return y;

  Backward halves{.inputs =
                      [w = SavedTensor(w), in_rows, out_rows](const Tensor& dy, Gradients& g) {
                        if (g.records())
                          return ops::give_recorded(
                              g, 0, [&] { return matmul(dy.reshape(out_rows), w.get()).reshape(g.input(0).shape); });
                        write_grad(g, 0, [&](const Tensor& dx) {
                          launch<kernel::LinearBackwardInput>(ops::shaped(dx, in_rows), ops::shaped(dy, out_rows), w);
                        });
                      },
                  .weights =
                      [x = SavedTensor(x), in_rows, out_rows](const Tensor& dy, Gradients& g) {
                        const View rows = ops::shaped(dy, out_rows);
                        if (g.records()) {
                          ops::give_recorded(g, 1, [&] {
                            return matmul(dy.reshape(out_rows), x.get().reshape(in_rows), {.transpose_a = true});
                          });
                          return ops::give_recorded(g, 2, [&] { return dy.reshape(out_rows); });
                        }
                        ops::give_weight_and_bias(g, 1, 2, rows, [&](const View& dw, const View& db, bool accumulate) {
                          launch<kernel::LinearBackwardWeight>(dw, db, ops::shaped(x, in_rows), rows, accumulate);
                        });
                      },
                  .twice = !is_half(x.dtype())};
  if (!relu) return record("linear", std::move(y), {x, leaf_w, leaf_bias}, std::move(halves));
  return ops::record_relu(y, record("linear", y.detach(), {x, leaf_w, leaf_bias}, std::move(halves)));
}

}  // namespace trireme
