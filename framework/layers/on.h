// Placement by hand: on(cuda(1), classifier()) is the layer with its weights on that device; what it is given is copied
// there, and the gradient comes back. Layers on several devices make one model; Parameters and the optimizer keep a
// block on each. Sequential{on(cpu(0), features()), on(cpu(1), classifier())}
#pragma once
#include <utility>

#include "framework/layers/sequential.h"

namespace trireme {

class On {
 public:
  /// Moves the layer's weights and buffers, but for those that an on() within has placed. Before Parameters. Throws
  /// Error for a device that is not there.
  On(Device, Module layer);
  Tensor operator()(const Tensor& x) const { return layer_(x.to(device_)); }
  void visit(const StateVisitor&);  ///< names stay as they were
  Device device() const { return device_; }

 private:
  Device device_;
  Module layer_;
};

/// Moves a layer's weights and buffers, but for those that an on() has placed: On without the copy of the input. Before
/// Parameters. Throws Error for a device that is not there. Copies of a layer share what is moved.
void place(Module layer, Device);

inline On on(Device device, Module layer) { return {device, std::move(layer)}; }
/// Layers in a row.
template <class... L>
requires(sizeof...(L) > 1) On on(Device device, L&&... layers) {
  return {device, Sequential{std::forward<L>(layers)...}};
}

}  // namespace trireme
