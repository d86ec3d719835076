// Hooked: a layer with hooks that see its inputs, outputs and gradients (PyTorch's forward and full backward hooks).
#pragma once
#include <functional>

#include "framework/autograd/node.h"
#include "framework/autograd/tape.h"
#include "framework/layers/module.h"
#include "framework/tensor/storage.h"

namespace trireme {

/// The hooks of a Hooked layer; empty ones are not called.
struct LayerHooks {
  /// Called with each input and output. A defined result replaces the output.
  std::function<Tensor(const Tensor& x, const Tensor& y)> forward = {};
  /// Called with the gradient of each recorded output, as in on_grad().
  std::function<Tensor(const Tensor& dy)> gradient = {};
};
class Hooked {
 public:
  /// The layer, with these hooks.
  Hooked(Module layer, LayerHooks hooks) : layer_(std::move(layer)), hooks_(std::move(hooks)) {}
  /// Calls the layer and the hooks.
  Tensor operator()(const Tensor& x) const {
    Tensor y = layer_(x);
    if (hooks_.forward)
      if (Tensor other = hooks_.forward(x, y)) y = std::move(other);
    if (hooks_.gradient && is_grad_recorded({&y, 1}) && y.impl()->node && !y.impl()->node->leaf)
      on_grad(y, hooks_.gradient);
    return y;
  }
  void visit(const StateVisitor& v) { layer_.visit(v); }  ///< names as in the inner layer, without a prefix

 private:
  Module layer_;
  LayerHooks hooks_;
};

}  // namespace trireme
