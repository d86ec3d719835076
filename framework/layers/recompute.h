// Recompute: a layer that keeps only its input and runs forward again in backward (activation checkpointing: Chen et
// al. 2016, arXiv 1604.06174; torch.utils.checkpoint). It needs less memory for one more forward. Results are the same:
// dropout masks are functions of step and sample, and running statistics are updated once.
#pragma once
#include <span>
#include <string>

#include "framework/layers/module.h"

namespace trireme {

/// Options of a Recompute.
struct RecomputeOptions {
  /// Keeps the input in host memory between forward and backward (torch.autograd.graph.save_on_cpu with pinned memory).
  /// The device copies in the order of its work. The tensor comes back earlier if another layer reads it. A batch and
  /// fields of the input stay on the device. Steps with copies are not replayed as CUDA graphs. On a CPU the option
  /// does nothing. Default: false.
  bool offload = false;
};

class Recompute {
 public:
  explicit Recompute(Module layer, const RecomputeOptions& options = {})
      : layer_(std::move(layer)), options_(options) {}
  Tensor operator()(const Tensor& x) const;
  void visit(const StateVisitor& v) { layer_.visit(v); }  ///< names as in the inner layer, without a prefix

  const Module& layer() const { return layer_; }  ///< the inner layer

 private:
  Module layer_;
  RecomputeOptions options_;
};

/// The model with some of its layers in a Recompute: those of its Sequential, and of Sequentials inside, whose full
/// names ("h.3", "layer2.0") match one of the patterns, by matches(). With options.offload, Recompute layers that these
/// Sequentials have already keep their inputs in host memory, too. Shares the layers with the model. Throws Error for a
/// pattern that matches no layer.
Module recompute(const Module& model, std::span<const std::string> patterns, const RecomputeOptions& options = {});

}  // namespace trireme
