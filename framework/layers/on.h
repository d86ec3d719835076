// Placement by hand: on(cuda(1), classifier()) is the layer with its weights on that device; what it is given is copied
// there, and the gradient comes back. Layers on several devices make one model; Parameters and the optimizer keep a
// block on each. Sequential{on(cpu(0), features()), on(cpu(1), classifier())}
#pragma once
#include <utility>

#include "framework/layers/sequential.h"

namespace trireme {

/// A layer with its weights on a device; its input is copied there, its output stays there.
class On {
 public:
  /// Moves the layer's weights and buffers, but for those that an on() within has placed. Throws Error for an empty
  /// layer, for a device that is not there, and for weights that live in Parameters already.
  On(Device, Module layer);
  Tensor operator()(const Tensor& x) const { return layer_(x.to(device_)); }  ///< on this device, differentiable
  void visit(const StateVisitor&);                                            ///< names stay as they were
  Device device() const { return device_; }                                   ///< of the weights and the output

 private:
  Device device_;
  Module layer_;
};

/// Moves a layer's weights and buffers, but for those that an on() has placed: On without the copy of the input. Copies
/// of a layer share the moved tensors. Throws Error for an empty layer, for a device that is not there, and for weights
/// that live in Parameters already.
void place(Module layer, Device);

/// On(device, layer).
inline On on(Device device, Module layer) { return {device, std::move(layer)}; }
/// On of a Sequential of these layers.
template <class... L>
requires(sizeof...(L) > 1) On on(Device device, L&&... layers) {
  return {device, Sequential{std::forward<L>(layers)...}};
}

}  // namespace trireme
