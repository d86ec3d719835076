// Activations with weights, and Identity. Others are ops: Sequential{Conv2d(1, 8, 3), relu, ...}.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// torch.nn.PReLU (He et al., arXiv 1502.01852): x, below 0 times a trained slope: one, or one for each channel.
struct PReLU {
  /// count: 1, or the channels of x [..., C].
  explicit PReLU(Index count = 1, double slope = 0.25) : init(Init::constant(slope)) {
    check(count > 0, "prelu", "{} slopes, expected at least 1", count);
    weight = init.make({count});
  }
  Tensor operator()(const Tensor& x) const { return prelu(x, weight); }
  /// Names "weight".
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::no_decay, init); }
  Tensor weight;  ///< [count]
  Init init;
};
/// The op of a name: gelu, gelu_tanh (gelu_new of Hugging Face, too), relu, silu, tanh, ... Throws Error with "did you
/// mean" for an unknown one.
Tensor (*activation_named(const std::string& name))(const Tensor&);
/// torch.nn.Identity: x.
struct Identity {
  Tensor operator()(const Tensor& x) const { return x; }
};

}  // namespace trireme
