#include "framework/optim/parameters.h"

#include "framework/autograd/node.h"
#include "framework/autograd/tape.h"
#include "framework/tensor/storage.h"

namespace trireme {

Module convert(Module model, DType dtype) {
  check(is_float(dtype), "convert", "got {}, expected a floating type (f32, f64, bf16 or f16)", dtype);
  const NoGrad nothing_recorded;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    Tensor& t = *leaf.tensor;
    const DType to = leaf.kind == StateKind::buffer && is_half(dtype) ? DType::f32 : dtype;
    if (!is_float(t.dtype()) || t.dtype() == to) return;
    check(!detail::owner_of(t), "convert",
          "'{}' is in Parameters already: convert the model before creating Parameters", leaf.name);
    const bool leads = t.requires_grad();  // for example of a ParameterStore that was destroyed
    if (leads) t.require_grad(false);
    const Tensor converted = Tensor::empty(t.shape(), to, t.device());
    zero_untouched(converted);
    copy_to_zeros(converted, t.detach());  // weights that are drawn later (SkipInit) take no memory
    t.impl()->block = converted.impl()->block;
    t.impl()->offset = converted.impl()->offset;
    t.impl()->dtype = to;
    if (leads) t.require_grad();
  }));
  return model;
}

}  // namespace trireme
