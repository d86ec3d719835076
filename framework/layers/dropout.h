// Dropout, Dropout2d and DropPath: the layers of dropout(), channel_dropout() and row_dropout().
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Dropout (Srivastava et al., JMLR 15, 2014), as torch.nn.Dropout: in training each element of x [rows, ...] becomes 0
/// with probability p, else x / (1 - p). In evaluation y = x. The mask is a function of seed, step, sample id and the
/// layer's name, so it does not depend on the number of ranks. Throws Error unless 0 <= p < 1.
struct Dropout {
  /// probability: of an element to become 0, in [0, 1).
  explicit Dropout(double probability) : p(probability) {
    check(p >= 0 && p < 1, "dropout", "probability is {}, expected 0 <= p < 1", p);
  }
  Tensor operator()(const Tensor& x) const { return dropout(x, p, key); }  ///< dropout()
  void visit(const StateVisitor& v) { v.random(key); }  ///< takes the key of its masks; it has no tensors
  double p;                                             ///< probability of an element to become 0, in [0, 1)
  std::uint64_t key = 0;                                ///< key of the masks, from the layer's name; Parameters sets it
};
/// torch.nn.Dropout2d (and 1d, 3d): as Dropout, for whole channels of x [rows, ..., C].
struct Dropout2d : Dropout {
  using Dropout::Dropout;
  Tensor operator()(const Tensor& x) const { return channel_dropout(x, p, key); }  ///< channel_dropout()
};
/// Stochastic depth (arXiv 1603.09382; timm's DropPath): as Dropout, for whole rows.
struct DropPath : Dropout {
  using Dropout::Dropout;
  Tensor operator()(const Tensor& x) const { return row_dropout(x, p, key); }  ///< row_dropout()
};

}  // namespace trireme
