// ops::unary: the op of a unary formula (kernels/formulas/pointwise.h), of the library or your own:
//   struct HardShrink { ... double lambda = 0.5; ... };
//   const CpuFormula<HardShrink> hard_shrink_cpu;                                     // kernels/cpu/map.h
//   Tensor hard_shrink(const Tensor& x, double lambda) { return ops::unary(x, HardShrink{lambda}); }
#pragma once
#include "framework/ops/help.h"

namespace trireme::ops {

/// The backward of a unary formula, with the tensors that its slope reads.
template <class F>
struct UnaryBackward {
  SavedTensor x,              ///< input; undefined unless F::needs_x
      y;                      ///< output; undefined unless F::needs_y
  [[no_unique_address]] F f;  ///< the formula and its parameters

  /// dx = dy f'(x), written to dy's block if no other handle holds it.
  void operator()(const Tensor& dy, Gradients& g) const {
    using Slope = kernel::MapBackward<F>;
    if (!is_uniquely_owned(dy)) return write_grad(g, 0, [&](const Tensor& dx) { launch<Slope>(dx, dy, x, y, f); });
    launch<Slope>(dy, dy, x, y, f);
    g.set_grad(0, dy);
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
                UnaryBackward<F>{SavedTensor(std::move(keep_x)), SavedTensor(std::move(keep_y)), f});
}

}  // namespace trireme::ops
