// Embedding: a trained vector for each id. PositionEmbedding: a trained vector for each position in a text.
#pragma once
#include <optional>

#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// torch.nn.Embedding: ids i64 [...] in [0, count) -> [..., features].
struct Embedding {
  /// count: number of ids; features: length of a vector. draw: initial values of the weight; the default is PyTorch's,
  /// the standard normal distribution. Throws Error for count or features below 1.
  Embedding(Index count, Index features, Init draw = Init::normal(1));
  /// take(). Throws Error naming row and token for an id outside of the range; on a GPU at the next synchronization.
  Tensor operator()(const Tensor& ids) const;
  /// Visits "weight".
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::weight, init); }
  Tensor weight;  ///< [count, features]; f32 on the CPU until convert() or place()
  Init init;      ///< of weight
  /// Type of the result, and so of later activations: bf16 or f16 with f32 weights. None: the weight's type.
  std::optional<DType> dtype = {};
};
/// Learned positions (Vaswani et al., arXiv 1706.03762, section 3.5): x [N, T, C] + weight[positions]. Positions are 0
/// to T - 1, or continue after the tokens in a KvCache.
struct PositionEmbedding : Embedding {
  using Embedding::Embedding;  ///< count: maximum number of tokens of a sample
  /// Throws Error for more tokens than positions.
  Tensor operator()(const Tensor& x) const;
};

}  // namespace trireme
