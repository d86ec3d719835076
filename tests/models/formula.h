// Weights by a formula that tests in Python compute, too, and names of tensors as PyTorch lists them.
#pragma once
#include <cmath>
#include <string>

#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme::test {

/// tests/oracles/torch_vgg.py's numbers.
inline Tensor formula(const Shape& shape, std::uint64_t key) {
  const Tensor t = Tensor::empty(shape);
  const Index n = shape.numel();
  const double scale = shape.rank() > 1 ? std::sqrt(24.0 / static_cast<double>(n / shape[0])) : 0.2;
  float* out = t.data<float>();
  for (Index i = 0; i < n; ++i) {
    const auto bits = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) * 2654435761u + key * 40503u);
    out[i] = static_cast<float>((bits / 4294967296.0 - 0.5) * scale);
  }
  return t;
}

/// A filter's shape in PyTorch's order.
inline Shape in_file(const Shape& s) {
  Shape moved{s[0], s[-1]};
  for (int i = 1; i < s.rank() - 1; ++i) moved.push_back(s[i]);
  return moved;
}
/// "name [extents]" by PyTorch's shapes.
inline std::string list(Module model) {
  std::string text;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    Shape shape = leaf.tensor->shape();
    if (leaf.layout == FileLayout::filter) shape = in_file(shape);
    text += fmt::format("{} {}\n", leaf.name, shape);
  }));
  return text;
}

/// Gives every weight and buffer the formula's numbers, its number in visit order being the key.
inline void load_formula(Module& model) {
  std::uint64_t key = 0;
  for (const NamedState& t : named_tensors(model)) {
    const Shape& s = t.tensor->shape();
    Tensor numbers = formula(t.layout == FileLayout::filter ? in_file(s) : s, key++);
    if (t.name.ends_with("running_var")) numbers = abs(numbers) + 0.5;
    if (s.rank() == 1 && t.name.ends_with("weight")) numbers = numbers + 1;  // of a norm
    if (t.layout == FileLayout::filter) {
      Shape last{0};
      for (int i = 2; i < s.rank(); ++i) last.push_back(i);
      last.push_back(1);
      numbers = permute(numbers, last);
    }
    t.tensor->copy_from(numbers);
  }
}

}  // namespace trireme::test
