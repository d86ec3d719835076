// Placement by hand: on(cuda(1), classifier()) is the layer with its weights on that device. Inputs are copied there,
// and gradients back. Layers on several devices can form one model; Parameters and the optimizer keep a block on each
// device. Sequential{on(cpu(0), features()), on(cpu(1), classifier())}
#pragma once
#include <utility>

#include "framework/layers/sequential.h"

namespace trireme {

/// A layer with its weights on a device. Its input is copied to that device, and its output stays there.
class On {
 public:
  /// Moves the layer's weights and buffers, except layers that an inner on() has placed. Throws Error for an empty
  /// layer, for a device that does not exist, and for weights that are in a ParameterStore.
  On(Device, Module layer);
  /// Computed on this device, differentiable.
  Tensor operator()(const Tensor& x) const { return layer_(x.to(device_)); }
  void visit(const StateVisitor&);           ///< names as in the inner layer, without a prefix
  Device device() const { return device_; }  ///< device of the weights and the output

 private:
  Device device_;
  Module layer_;
};

/// Moves a layer's weights and buffers, except layers that an on() has placed. Unlike On it does not copy inputs. While
/// a SkipInit lives, weights on the host only go to another kind of device when they are first used. Copies of a layer
/// share the moved tensors. Throws Error for an empty layer, for a device that does not exist, and for weights that are
/// in a ParameterStore.
void place(Module layer, Device);

/// On(device, layer).
inline On on(Device device, Module layer) { return {device, std::move(layer)}; }
/// On(device, Sequential{layers...}).
template <class... L>
requires(sizeof...(L) > 1) On on(Device device, L&&... layers) {
  return {device, Sequential{std::forward<L>(layers)...}};
}

}  // namespace trireme
