#include "framework/on.h"

#include "framework/tape.h"

namespace trireme {

On::On(Device device, Module layer) : device_(device), layer_(std::move(layer)) {
  check(bool(layer_), "on", "there is no layer to put on {}", device);
  const NoGrad nothing_recorded;
  layer_.visit(Visit::unplaced([&](const Leaf& leaf) {
    Tensor& t = *leaf.tensor;
    check(!t.requires_grad(), "on", "'{}' already lives in Parameters; place layers before making them", leaf.name);
    const Tensor moved = t.detach().to(device);
    t.impl()->block = moved.impl()->block;
    t.impl()->offset = moved.impl()->offset;
  }));
}

void On::visit(const Visit& v) {
  if (v.placed()) layer_.visit(v);
}

}  // namespace trireme
