#include "framework/optim/parameters.h"

#include "framework/autograd/tape.h"

namespace trireme {

Module convert(Module model, DType dtype) {
  check(is_float(dtype), "convert", "{} is no floating type; a model is f32, f64, bf16 or f16", dtype);
  const NoGrad nothing_recorded;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    Tensor& t = *leaf.tensor;
    const DType to = leaf.use == StateKind::buffer && is_half(dtype) ? DType::f32 : dtype;
    if (!is_float(t.dtype()) || t.dtype() == to) return;
    check(!t.requires_grad(), "convert", "'{}' already lives in Parameters; convert the model before making them",
          leaf.name);
    const Tensor converted = t.to(to);
    t.impl()->block = converted.impl()->block;
    t.impl()->offset = converted.impl()->offset;
    t.impl()->dtype = to;
  }));
  return model;
}

}  // namespace trireme
