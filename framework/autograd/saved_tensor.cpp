#include "framework/autograd/saved_tensor.h"
#include "framework/tensor/launch.h"

namespace trireme {

View detail::lower(const SavedTensor& t) { return t; }

void SavedTensor::check_unwritten() const {
  const Tensor::Impl& t = *t_.impl();
  const auto bytes = static_cast<std::size_t>(t_.view().bytes());
  check(!t.block->writes.touched(writes_, t.offset, t.offset + bytes), "backward",
        "'{}' needs a tensor {} as it was in the forward, but it has been written to in place since (by copy_from, an "
        "initialiser or an optimizer's step): write to it after backward, or to a clone()",
        detail::op_in_backward(), t.shape);
}

}  // namespace trireme
