// Unary elementwise ops. A formula of kernels/formulas/pointwise.h says what its slope reads, and only that is kept.
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

template <class F>
Tensor unary(const Tensor& x) {
  ops::check_float(F::name, x);
  Tensor y = Tensor::like(x);
  launch<kernel::Map<F>>(y, x);
  if (!needs_record(F::name, y, {&x})) return y;
  Tensor keep_x = F::needs_x ? x : Tensor{}, keep_y = F::needs_y ? y.detach() : Tensor{};
  return record(
      F::name, std::move(y), {x},
      [x = SavedTensor(std::move(keep_x)), y = SavedTensor(std::move(keep_y))](const Tensor& dy, Gradients& g) {
        using Slope = kernel::MapBackward<F>;
        if (!is_uniquely_owned(dy)) return write_grad(g, 0, [&](const Tensor& dx) { launch<Slope>(dx, dy, x, y); });
        launch<Slope>(dy, dy, x, y);
        g.set_grad(0, dy);
      });
}

}  // namespace

Tensor relu(const Tensor& x) { return unary<pointwise::Relu>(x); }
Tensor leaky_relu(const Tensor& x) { return unary<pointwise::LeakyRelu>(x); }
Tensor elu(const Tensor& x) { return unary<pointwise::Elu>(x); }
Tensor gelu(const Tensor& x) { return unary<pointwise::Gelu>(x); }
Tensor silu(const Tensor& x) { return unary<pointwise::Silu>(x); }
Tensor sigmoid(const Tensor& x) { return unary<pointwise::Sigmoid>(x); }
Tensor tanh(const Tensor& x) { return unary<pointwise::Tanh>(x); }
Tensor softplus(const Tensor& x) { return unary<pointwise::Softplus>(x); }
Tensor softsign(const Tensor& x) { return unary<pointwise::Softsign>(x); }
Tensor exp(const Tensor& x) { return unary<pointwise::Exp>(x); }
Tensor log(const Tensor& x) { return unary<pointwise::Log>(x); }
Tensor sqrt(const Tensor& x) { return unary<pointwise::Sqrt>(x); }
Tensor square(const Tensor& x) { return unary<pointwise::Square>(x); }
Tensor abs(const Tensor& x) { return unary<pointwise::Abs>(x); }
Tensor neg(const Tensor& x) { return unary<pointwise::Neg>(x); }

Tensor scale(const Tensor& x, double factor) {
  ops::check_float("scale", x);
  Tensor y = Tensor::like(x);
  launch<kernel::Axpby>(y, x, factor, 0.0);
  if (!needs_record("scale", y, {&x})) return y;
  return record("scale", std::move(y), {x}, factor, [factor](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dx) { launch<kernel::Axpby>(dx, dy, factor, 0.0); });
  });
}

}  // namespace trireme
