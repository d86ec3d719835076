// HostCopy: an asynchronous copy of a tensor to the host (PyTorch's non_blocking .cpu()). The device continues with
// later work. Reading the values waits only for work that was submitted before the copy.
#pragma once
#include <functional>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

class HostCopy {
 public:
  HostCopy() = default;  ///< no copy
  /// Starts the copy.
  explicit HostCopy(const Tensor& t);
  explicit operator bool() const { return bool(fetch_); }  ///< whether there is a copy that has not been read
  /// Waits, and returns the values converted to double. Call it once.
  std::vector<double> values();
  /// As values(), for a tensor of one element.
  double item();

 private:
  Shape shape_;
  DType dtype_ = DType::f32;
  std::function<void(void* to)> fetch_;
};

}  // namespace trireme
