#include "framework/layers/on.h"

#include "framework/autograd/tape.h"
#include "framework/layers/init.h"
#include "framework/tensor/storage.h"

namespace trireme {

void place(Module layer, Device device) {
  check(bool(layer), "on", "there is no layer to put on {}", device);
  const NoGrad nothing_recorded;
  layer.visit(StateVisitor::unplaced([&](const NamedState& leaf) {
    Tensor& t = *leaf.tensor;
    check(!t.requires_grad(), "on", "'{}' is in Parameters already: place layers before creating Parameters",
          leaf.name);
    const bool later = SkipInit::is_active() && leaf.kind != StateKind::buffer && device.kind != DeviceKind::cpu &&
                       t.device().kind == DeviceKind::cpu;
    const Tensor moved = later ? detail::moved_later(t.detach(), device) : t.detach().to(device);
    t.impl()->block = moved.impl()->block;
    t.impl()->offset = moved.impl()->offset;
  }));
}

On::On(Device device, Module layer) : device_(device), layer_(std::move(layer)) { place(layer_, device); }

void On::visit(const StateVisitor& v) {
  if (v.placed()) layer_.visit(v);
}

}  // namespace trireme
