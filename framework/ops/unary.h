// ops::unary: the op of a unary formula (kernels/formulas/pointwise.h), of the library or your own:
//   struct HardShrink { ... double lambda = 0.5; ... };
//   const CpuFormula<HardShrink> hard_shrink_cpu;                                     // kernels/cpu/map.h
//   Tensor hard_shrink(const Tensor& x, double lambda) { return ops::unary(x, HardShrink{lambda}); }
#pragma once
#include "framework/ops/help.h"
#include "framework/ops/ops.h"

namespace trireme::ops {

/// Whether the formula's second derivative is 0 wherever it exists (F::linear_pieces).
template <class F>
constexpr bool has_linear_pieces() {
  if constexpr (requires { F::linear_pieces; })
    return F::linear_pieces;
  else
    return false;
}
/// Whether recorded_slope(f, x, y) gives the formula's slope by ops, as in framework/ops/slopes.h. Undefined is what
/// the slope does not read.
template <class F>
concept HasRecordedSlope = requires(const F& f, const Tensor& x, const Tensor& y) {
  recorded_slope(f, x, y);
};

/// The backward of a unary formula, with the tensors that its slope reads.
template <class F>
struct UnaryBackward {
  SavedTensor x,              ///< input; undefined unless F::needs_x
      y;                      ///< output; undefined unless F::needs_y
  [[no_unique_address]] F f;  ///< the formula and its parameters

  /// dx = dy f'(x), written to dy's block if no other handle holds it.
  void operator()(const Tensor& dy, Gradients& g) const {
    using Slope = kernel::MapBackward<F>;
    if (g.records()) return g.set_grad(0, recorded(dy, g));
    if (!is_uniquely_owned(dy)) return write_grad(g, 0, [&](const Tensor& dx) { launch<Slope>(dx, dy, x, y, f); });
    launch<Slope>(dy, dy, x, y, f);
    g.set_grad(0, dy);
  }

 private:
  Tensor recorded(const Tensor& dy, Gradients& g) const {
    if constexpr (HasRecordedSlope<F>) {
      return dy * recorded_slope(f, x.get(), y ? g.result(y) : Tensor());
    } else {  // has_linear_pieces()
      Tensor slope = Tensor::full(dy.shape(), 1, dy.dtype(), dy.device());
      launch<kernel::MapBackward<F>>(slope, slope, x, y, f);
      return dy * slope;
    }
  }
};

/// y = f(x) for a floating type, recorded with the tensors that f's slope reads. A Trace gets f as the op's options.
/// Throws Error if x is undefined or has an integer type, or if its device has no kernel of F.
template <class F>
Tensor unary(const Tensor& x, const F& f = {}) {
  check_float(F::name, x);
  Tensor y = part_like(x);
  launch<kernel::Map<F>>(y, x, f);
  if (!needs_record(F::name, y, {&x})) return y;
  Tensor keep_x = F::needs_x ? x : Tensor{}, keep_y = F::needs_y ? y.detach() : Tensor{};
  // Built here for speed: a move directly after the stores of the handles above would wait for them.
  std::vector<Tensor> inputs{x};
  return record(F::name, std::move(y), std::move(inputs), f,
                Backward{.inputs = UnaryBackward<F>{SavedTensor(std::move(keep_x)), SavedTensor(std::move(keep_y)), f},
                         .twice = HasRecordedSlope<F> || has_linear_pieces<F>()});
}

}  // namespace trireme::ops
