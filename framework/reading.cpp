#include "framework/reading.h"

#include <utility>

#include "kernels/runtime.h"

namespace trireme {

Reading::Reading(const Tensor& t) : shape_(t.shape()), dtype_(t.dtype()) {
  const View v = t.view();
  fetch_ = runtime(v.device.kind).fetch_later(v.data, static_cast<std::size_t>(v.bytes()), v.device);
}

std::vector<double> Reading::values() {
  check(bool(fetch_), "reading", "there is nothing to read, or it was read before");
  const Tensor host = Tensor::empty(shape_, dtype_);
  std::exchange(fetch_, {})(host.view().data);
  return host.to_vector();
}
double Reading::item() {
  check(shape_.numel() == 1, "item", "wants one element, the tensor is {}", shape_);
  return values()[0];
}

}  // namespace trireme
