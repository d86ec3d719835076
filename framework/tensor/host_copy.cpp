#include "framework/tensor/host_copy.h"

#include <utility>

#include "kernels/core/runtime.h"

namespace trireme {

HostCopy::HostCopy(const Tensor& t) : shape_(t.shape()), dtype_(t.dtype()) {
  const View v = t.view();
  fetch_ = runtime(v.device.kind).fetch_later(v.data, static_cast<std::size_t>(v.bytes()), v.device);
}

std::vector<double> HostCopy::values() {
  check(bool(fetch_), "reading", "there is nothing to read, or it was read before");
  const Tensor host = Tensor::empty(shape_, dtype_);
  std::exchange(fetch_, {})(host.view().data);
  return host.to_vector();
}
double HostCopy::item() {
  check(shape_.numel() == 1, "item", "the tensor is {}, expected one element", shape_);
  return values()[0];
}

}  // namespace trireme
