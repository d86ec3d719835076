// Embedding: a row of numbers for each id.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// torch.nn.Embedding: ids i64 [...] in [0, count) -> [..., features].
struct Embedding {
  /// Throws Error for count or features below 1. draw: of the weight; PyTorch's default is the standard normal
  /// distribution.
  Embedding(Index count, Index features, Init draw = Init::normal(1)) : init(std::move(draw)) {
    check(count > 0 && features > 0, "embedding", "{} ids and {} features, expected at least 1 of each", count,
          features);
    weight = init.make({count, features});
  }
  Tensor operator()(const Tensor& ids) const { return take(weight, ids); }  ///< ops take()
  /// Names "weight".
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::weight, init); }
  Tensor weight;  ///< [count, features]; f32 on the CPU until convert() or place()
  Init init;      ///< of weight
};

}  // namespace trireme
