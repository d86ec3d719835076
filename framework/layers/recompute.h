// Recompute: a layer that keeps only its input, and runs again when backward comes to it (Chen et al. 2016, arXiv
// 1604.06174): less memory for one more forward pass of what it holds. Same numbers: dropout masks are functions of the
// step and the sample, and running statistics move once.
#pragma once
#include "framework/layers/module.h"

namespace trireme {

class Recompute {
 public:
  explicit Recompute(Module layer) : layer_(std::move(layer)) {}
  Tensor operator()(const Tensor& x) const;
  void visit(const StateVisitor& v) { layer_.visit(v); }  ///< names stay as they were

 private:
  Module layer_;
};

}  // namespace trireme
