// Hooked: a layer with functions that see what goes through it (PyTorch's forward and full backward hooks).
#pragma once
#include <functional>

#include "framework/autograd/node.h"
#include "framework/autograd/tape.h"
#include "framework/layers/module.h"
#include "framework/tensor/storage.h"

namespace trireme {

/// What a Hooked layer calls; empty ones are not.
struct LayerHooks {
  /// With each input and output. What it returns, unless undefined, is the output in its place.
  std::function<Tensor(const Tensor& x, const Tensor& y)> forward = {};
  /// With the gradient of each recorded output, as on_grad() calls it.
  std::function<Tensor(const Tensor& dy)> gradient = {};
};
class Hooked {
 public:
  Hooked(Module layer, LayerHooks hooks) : layer_(std::move(layer)), hooks_(std::move(hooks)) {}
  Tensor operator()(const Tensor& x) const {
    Tensor y = layer_(x);
    if (hooks_.forward)
      if (Tensor other = hooks_.forward(x, y)) y = std::move(other);
    if (hooks_.gradient && is_grad_recorded({&y, 1}) && y.impl()->node && !y.impl()->node->leaf)
      on_grad(y, hooks_.gradient);
    return y;
  }
  void visit(const StateVisitor& v) { layer_.visit(v); }  ///< names stay as they were

 private:
  Module layer_;
  LayerHooks hooks_;
};

}  // namespace trireme
