// Activations with weights, and Identity. Activations without weights are ops: Sequential{Conv2d(1, 8, 3), relu, ...}.
#pragma once
#include "framework/layers/module.h"
#include "framework/ops/ops.h"

namespace trireme {

/// torch.nn.PReLU (He et al., arXiv 1502.01852): x if x >= 0, else slope * x. The slope is trained: one number, or one
/// per channel.
struct PReLU {
  /// count: number of slopes: 1, or the channels of x [..., C]. slope: their initial value. Throws Error for count < 1.
  explicit PReLU(Index count = 1, double slope = 0.25) : init(Init::constant(slope)) {
    check(count > 0, "prelu", "{} slopes, expected at least 1", count);
    weight = init.make({count});
  }
  /// prelu() with the slopes of this layer.
  Tensor operator()(const Tensor& x) const { return prelu(x, weight); }
  /// Visits "weight".
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::no_decay, init); }
  Tensor weight;  ///< the slopes [count]
  Init init;      ///< of weight
};
/// The activation op with this name: gelu, gelu_tanh (also as Hugging Face's gelu_new), relu, silu, tanh, ... Throws
/// Error with the nearest name for an unknown one.
Tensor (*activation_named(const std::string& name))(const Tensor&);
/// torch.nn.Identity: returns x.
struct Identity {
  /// Returns x.
  Tensor operator()(const Tensor& x) const { return x; }
};

}  // namespace trireme
