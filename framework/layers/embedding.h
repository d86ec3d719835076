// Embedding: a row of numbers for each id. PositionEmbedding: one for each place in a text.
#pragma once
#include <optional>

#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// torch.nn.Embedding: ids i64 [...] in [0, count) -> [..., features].
struct Embedding {
  /// Throws Error for count or features below 1. draw: of the weight; PyTorch's default is the standard normal
  /// distribution.
  Embedding(Index count, Index features, Init draw = Init::normal(1));
  /// ops take(). Throws Error naming row and token of an id outside of the range, on a GPU at the next wait.
  Tensor operator()(const Tensor& ids) const;
  /// Names "weight".
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::weight, init); }
  Tensor weight;  ///< [count, features]; f32 on the CPU until convert() or place()
  Init init;      ///< of weight
  /// Of the result, and so of what is computed behind it: bf16 or f16 over f32 weights. None: the weight's.
  std::optional<DType> dtype = {};
};
/// Learned positions (Vaswani et al., arXiv 1706.03762, section 3.5): x [N, T, C] + weight[positions], 0 to T - 1, or
/// those behind the tokens that a KvCache has.
struct PositionEmbedding : Embedding {
  using Embedding::Embedding;  ///< count: most tokens of a sample
  /// Throws Error for more tokens than there are positions.
  Tensor operator()(const Tensor& x) const;
};

}  // namespace trireme
