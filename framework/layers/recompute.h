// Recompute: a layer that keeps only its input and runs forward again in backward (activation checkpointing: Chen et
// al. 2016, arXiv 1604.06174; torch.utils.checkpoint). It needs less memory for one more forward. Results are the same:
// dropout masks are functions of step and sample, and running statistics are updated once.
#pragma once
#include <span>
#include <string>

#include "framework/layers/module.h"

namespace trireme {

class Recompute {
 public:
  explicit Recompute(Module layer) : layer_(std::move(layer)) {}
  Tensor operator()(const Tensor& x) const;
  void visit(const StateVisitor& v) { layer_.visit(v); }  ///< names as in the inner layer, without a prefix

 private:
  Module layer_;
};

/// The model with some of its layers in a Recompute: those of its Sequential, and of Sequentials inside, whose full
/// names ("h.3", "layer2.0") match one of the patterns, by matches(). Shares the layers with the model. Throws Error
/// for a pattern that matches no layer.
Module recompute(const Module& model, std::span<const std::string> patterns);

}  // namespace trireme
