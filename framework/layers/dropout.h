// Dropout, Dropout2d and DropPath: the layers of the op dropout() and its kin.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// Srivastava et al. (JMLR 15, 2014), as torch.nn.Dropout: in training each element of x [rows, ...] becomes 0 with
/// probability p, else x / (1 - p); in evaluation y = x. The mask is a function of (seed, step, sample id, this layer's
/// name): the same on one rank and on many. Throws Error unless 0 <= p < 1.
struct Dropout {
  /// probability of an element to become 0, in [0, 1).
  explicit Dropout(double probability) : p(probability) {
    check(p >= 0 && p < 1, "dropout", "probability is {}, expected 0 <= p < 1", p);
  }
  Tensor operator()(const Tensor& x) const { return dropout(x, p, key); }  ///< ops dropout()
  void visit(const StateVisitor& v) { v.random(key); }                     ///< takes its key; it has no tensors
  double p;               ///< probability of an element to become 0, in [0, 1)
  std::uint64_t key = 0;  ///< of the name; Parameters sets it
};
/// torch.nn.Dropout2d (and 1d, 3d): whole channels of x [rows, ..., C] become 0, else Dropout.
struct Dropout2d : Dropout {
  using Dropout::Dropout;
  Tensor operator()(const Tensor& x) const { return channel_dropout(x, p, key); }  ///< ops channel_dropout()
};
/// Stochastic depth (arXiv 1603.09382; timm's DropPath): whole rows become 0, else Dropout.
struct DropPath : Dropout {
  using Dropout::Dropout;
  Tensor operator()(const Tensor& x) const { return row_dropout(x, p, key); }  ///< ops row_dropout()
};

}  // namespace trireme
