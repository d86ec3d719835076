// Running a row of the op table, forward and backward.
#pragma once
#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "tests/framework/cases.h"
#include "tests/support/catch.h"

namespace trireme::test {

using Values = std::vector<double>;

/// Whose rows these are: seed, step and ids as in torch_ops.py.
inline StepContext a_pass(Index rows) {
  std::vector<double> ids;
  for (Index row = 0; row < rows; ++row) ids.push_back(static_cast<double>(3 * row + 1));
  StepContext context;
  context.batch.seed = 7;
  context.batch.step = 3;
  context.batch.samples = Tensor::of(ids, {rows}, DType::i64);
  return context;
}
inline Index rows_of(const Case& c) {
  for (const Input& input : c.inputs)
    if (input.rows && input.shape.rank() > 0) return input.shape[0];
  return 1;
}

struct CaseOutcome {
  Values y;
  Shape shape;
  bool differentiable = false;
  std::vector<Values> dx;  // empty where no gradient was asked for
};

/// A gradient for the result: of either sign, exact in bf16.
inline Tensor seed_for(const Tensor& y) {
  Values v(static_cast<std::size_t>(y.numel()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>((i * 37 + 11) % 64) / 32 - 0.984375;
  return Tensor::of(v, y.shape(), y.dtype());
}

/// Runs a case forward and backward over these inputs. only >= 0: just that input wants a gradient.
inline CaseOutcome outcome_of(const Case& c, Inputs x, int only = -1, Index rows = -1,
                              const BackwardOptions& options = {}) {
  StepScope scope(a_pass(rows >= 0 ? rows : rows_of(c)));
  for (std::size_t k = 0; k < x.size(); ++k)
    if (c.inputs[k].grad && (only < 0 || static_cast<std::size_t>(only) == k)) x[k].require_grad();
  const Tensor y = c.op(x);
  CaseOutcome result{y.to_vector(), y.shape(), y.requires_grad(), {}};
  if (!y.requires_grad()) return result;
  const Tensor seed = seed_for(y).to(y.device());
  backward({&y, 1}, {&seed, 1}, options);
  if (options.defer_weights) options.defer_weights->run();
  for (Tensor& t : x) {
    const bool reached = t.requires_grad() && has_grad(t);
    if (reached) {
      CHECK(t.grad().shape() == t.shape());
      CHECK(t.grad().dtype() == t.dtype());
    }
    result.dx.push_back(reached ? t.grad().to_vector() : Values{});
  }
  return result;
}
/// The same over the inputs that the case draws, on a device.
inline CaseOutcome outcome(const Case& c, DType dtype, int only = -1, Index rows = -1,
                           const BackwardOptions& options = {}, Device device = cpu()) {
  Inputs x = draw(c, dtype, rows);
  for (Tensor& t : x) t = t.to(device);
  return outcome_of(c, std::move(x), only, rows, options);
}

/// |a - b| / |b|, 2-norms.
inline double relative(const Values& a, const Values& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

}  // namespace trireme::test
