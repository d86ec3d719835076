// Binary elementwise ops with NumPy broadcasting; a broadcast operand's gradient is summed back to its shape.
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

template <class F>
Tensor zip(const Tensor& a, const Tensor& b) {
  ops::check_same_type(F::name, a, b);
  check(
      a.dtype() != DType::boolean, F::name,
      "the operand is bool, which has no arithmetic: use logical_and() and similar ops, or convert it with to(DType)");
  Tensor y = Tensor::empty(ops::broadcast(F::name, a.shape(), b.shape()), a.dtype(), a.device());
  ops::zip_into<F>(y, a, b);
  return y;
}
template <class F>
Tensor zipped(const Tensor& a, const Tensor& b) {
  Tensor y = Tensor::like(a);
  ops::zip_into<F>(y, a, b);
  return y;
}

/// Computes input i's gradient by write(target), where target has dy's shape, and sums it over broadcast axes.
template <class F>
void give_summed(Gradients& g, int i, const Shape& shape, const Tensor& dy, F&& write) {
  if (shape == dy.shape()) return write_grad(g, i, write);
  write_grad(g, i, [&](const Tensor& dx) {
    const Tensor full = Tensor::like(dy);
    write(full);
    ops::sum_to(dx, full);
  });
}
/// Input i gets dy itself, shared or summed over broadcast axes.
void pass_on(Gradients& g, int i, const Shape& shape, const Tensor& dy) {
  if (g.records()) return ops::give_recorded(g, i, [&] { return dy; });
  if (shape == dy.shape()) return g.set_grad(i, dy);
  write_grad(g, i, [&](const Tensor& dx) { ops::sum_to(dx, dy); });
}

template <class F, class Share>
Tensor pick(const Tensor& a, const Tensor& b) {
  Tensor y = zip<F>(a, b);
  if (!needs_record(F::name, y, {&a, &b})) return y;
  return record(F::name, std::move(y), {a, b}, {},
                ops::twice([a = SavedTensor(a), b = SavedTensor(b)](const Tensor& dy, Gradients& g) {
                  const auto by = [&](int i, const Tensor& x, const Tensor& other) {
                    if (g.records())
                      return ops::give_recorded(g, i, [&] {
                        const Tensor share = Tensor::like(dy);
                        ops::zip_into<Share>(share, x, other);
                        return dy * share;
                      });
                    give_summed(g, i, x.shape(), dy, [&](const Tensor& dx) {
                      ops::zip_into<Share>(dx, x, other);
                      ops::zip_into<pointwise::Mul>(dx, dx, dy);
                    });
                  };
                  by(0, a, b);
                  by(1, b, a);
                }));
}

/// A binary elementwise op of operands that ranks divide.
Tensor on_blocks(const char* op, const Tensor& a, const Tensor& b, Tensor (*f)(const Tensor&, const Tensor&)) {
  ops::check_same_type(op, a, b);
  const ops::Placed p = ops::place(op, ops::elementwise(op, {a, b}), {a, b});
  return p.put(f(p[0], p[1]));
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  if (ops::is_divided({&a, &b})) return on_blocks("add", a, b, add);
  Tensor y = zip<pointwise::Add>(a, b);
  if (!needs_record("add", y, {&a, &b})) return y;
  return record("add", std::move(y), {a, b}, {},
                ops::twice([sa = a.shape(), sb = b.shape()](const Tensor& dy, Gradients& g) {
                  pass_on(g, 0, sa, dy);
                  pass_on(g, 1, sb, dy);
                }));
}
Tensor sub(const Tensor& a, const Tensor& b) {
  if (ops::is_divided({&a, &b})) return on_blocks("sub", a, b, sub);
  Tensor y = zip<pointwise::Sub>(a, b);
  if (!needs_record("sub", y, {&a, &b})) return y;
  return record("sub", std::move(y), {a, b}, {},
                ops::twice([sa = a.shape(), sb = b.shape()](const Tensor& dy, Gradients& g) {
                  pass_on(g, 0, sa, dy);
                  if (g.records()) return ops::give_recorded(g, 1, [&] { return -dy; });
                  give_summed(g, 1, sb, dy, [&](const Tensor& db) { launch<kernel::Axpby>(db, dy, -1.0, 0.0); });
                }));
}
Tensor mul(const Tensor& a, const Tensor& b) {
  if (ops::is_divided({&a, &b})) return on_blocks("mul", a, b, mul);
  Tensor y = zip<pointwise::Mul>(a, b);
  if (!needs_record("mul", y, {&a, &b})) return y;
  return record("mul", std::move(y), {a, b}, {},
                ops::twice([a = SavedTensor(a), b = SavedTensor(b)](const Tensor& dy, Gradients& g) {
                  if (g.records()) {
                    ops::give_recorded(g, 0, [&] { return dy * b.get(); });
                    return ops::give_recorded(g, 1, [&] { return dy * a.get(); });
                  }
                  give_summed(g, 0, a.shape(), dy, [&](const Tensor& da) { ops::zip_into<pointwise::Mul>(da, dy, b); });
                  give_summed(g, 1, b.shape(), dy, [&](const Tensor& db) { ops::zip_into<pointwise::Mul>(db, dy, a); });
                }));
}
Tensor div(const Tensor& a, const Tensor& b) {
  ops::check_same_type("div", a, b);
  check(is_float(a.dtype()), "div",
        "operands are {}, expected a floating type: use floor_divide(), or convert both with to(DType::f32)",
        a.dtype());
  if (ops::is_divided({&a, &b})) return on_blocks("div", a, b, div);
  Tensor y = zip<pointwise::Div>(a, b);
  if (!needs_record("div", y, {&a, &b})) return y;
  const Tensor kept = y.detach();
  return record("div", std::move(y), {a, b}, {},
                ops::twice([sa = a.shape(), b = SavedTensor(b), y = SavedTensor(kept)](const Tensor& dy, Gradients& g) {
                  if (!g.needs_grad(0) && !g.needs_grad(1)) return;
                  if (g.records()) {
                    const Tensor da = dy / b.get();
                    ops::give_recorded(g, 1, [&] { return -da * g.result(y); });
                    return ops::give_recorded(g, 0, [&] { return da; });
                  }
                  Tensor da = zipped<pointwise::Div>(dy, b);
                  // d(a/b)/db = -y/b
                  give_summed(g, 1, b.shape(), dy, [&](const Tensor& db) {
                    ops::zip_into<pointwise::Mul>(db, da, y);
                    launch<kernel::Axpby>(db, db, -1.0, 0.0);
                  });
                  if (sa == dy.shape()) return g.set_grad(0, std::move(da));
                  pass_on(g, 0, sa, da);
                }));
}
Tensor div_scalar(const Tensor& x, double number) {
  if (x && !is_float(x.dtype()))
    fail("div",
         "the tensor is {} and the divisor {}, expected a floating type: use floor_divide(), or convert the tensor "
         "with to(DType::f32)",
         x.dtype(), number);
  return scale(x, 1 / number);
}
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  if (ops::is_divided({&a, &b})) return on_blocks("floor_divide", a, b, floor_divide);
  Tensor y = zip<pointwise::FloorDivide>(a, b);
  if (!needs_record("floor_divide", y, {&a, &b})) return y;
  return record("floor_divide", std::move(y), {a, b}, {}, ops::twice([](const Tensor& dy, Gradients& g) {
                  for (const int i : {0, 1}) {
                    if (g.records())
                      ops::give_recorded(g, i, [&] { return dy * 0; });
                    else
                      write_grad(g, i, [](const Tensor& dx) { launch<kernel::Fill>(dx, 0.0); });
                  }
                }));
}
Tensor floor_divide(const Tensor& a, double b) { return floor_divide(a, ops::number_like("floor_divide", a, b)); }
Tensor remainder(const Tensor& a, const Tensor& b) {
  if (ops::is_divided({&a, &b})) return on_blocks("remainder", a, b, remainder);
  if (ops::is_traced()) return a - b * floor_divide(a, b);
  Tensor y = zip<pointwise::Remainder>(a, b);
  if (!needs_record("remainder", y, {&a, &b})) return y;
  return record("remainder", std::move(y), {a, b}, {},
                ops::twice([a = SavedTensor(a), b = SavedTensor(b)](const Tensor& dy, Gradients& g) {
                  pass_on(g, 0, a.shape(), dy);
                  if (g.records())
                    return ops::give_recorded(g, 1,
                                              [&] { return -dy * floor_divide(a.get().detach(), b.get().detach()); });
                  give_summed(g, 1, b.shape(), dy, [&](const Tensor& db) {
                    ops::zip_into<pointwise::FloorDivide>(db, a, b);
                    ops::zip_into<pointwise::Mul>(db, db, dy);
                    launch<kernel::Axpby>(db, db, -1.0, 0.0);
                  });
                }));
}
Tensor remainder(const Tensor& a, double b) { return remainder(a, ops::number_like("remainder", a, b)); }
Tensor maximum(const Tensor& a, const Tensor& b) {
  if (ops::is_divided({&a, &b})) return on_blocks("maximum", a, b, maximum);
  return pick<pointwise::Maximum, pointwise::MaximumShare>(a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  if (ops::is_divided({&a, &b})) return on_blocks("minimum", a, b, minimum);
  return pick<pointwise::Minimum, pointwise::MinimumShare>(a, b);
}

}  // namespace trireme
