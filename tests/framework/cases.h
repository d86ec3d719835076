// The table of ops. One row buys: gradient check in f64, f32 and bf16 tolerances, parity with PyTorch, behaviour on a
// rank without rows, and a line in bench. Adding an op edits nothing else in tests/.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme::test {

enum class InputValues : std::uint8_t {
  between,    ///< uniform in [low, high)
  away,       ///< of either sign, low <= |value| < high: keeps off a kink at 0
  distinct,   ///< odd multiples of 1/256 in (-1, 1), no two alike nearby: keeps off ties and off 0
  statistic,  ///< as between, but f32 where the data is bf16 or f16
  label,      ///< i64 in [0, high)
};
/// One operand. Numbers are rounded to bf16, so that every type starts from the same ones.
struct Input {
  Shape shape;
  InputValues draw = InputValues::between;
  double low = -1, high = 1;
  bool grad = true;
  bool rows = true;  ///< the first axis counts samples
};
/// Numbers of that shape, uniform in [-1, 1).
inline Input data(const Shape& shape) { return {shape}; }
using Inputs = std::vector<Tensor>;

struct Case {
  std::string name;
  std::vector<Input> inputs;
  std::function<Tensor(const Inputs& x)> op;
  /// The same in Python over PyTorch, x being the list of inputs in our layout: see tests/oracles/torch_ops.py for what
  /// it may use. Empty: no such thing.
  std::string torch;
  /// Shapes worth timing, one per input; empty: not timed.
  std::vector<Shape> bench = {};
  double bf16 = 0.02;  ///< relative error (2-norm) that bf16 may show against f64
};

const std::vector<Case>& cases();
/// Inputs of a case in a type (labels stay i64); rows >= 0 replaces the count of samples.
Inputs draw(const Case&, DType, Index rows = -1);
/// Inputs of the shapes in Case::bench.
Inputs draw_bench(const Case&, DType);

}  // namespace trireme::test
