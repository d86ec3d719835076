// HostCopy: an asynchronous copy of a tensor to the host (PyTorch's non_blocking .cpu()). The device continues with
// later work; reading the values waits only for the work enqueued before the copy.
#pragma once
#include <functional>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

class HostCopy {
 public:
  HostCopy() = default;  ///< of nothing
  explicit HostCopy(const Tensor& t);
  explicit operator bool() const { return bool(fetch_); }
  /// Waits; converted. Once.
  std::vector<double> values();
  /// Of a tensor of one element.
  double item();

 private:
  Shape shape_;
  DType dtype_ = DType::f32;
  std::function<void(void* to)> fetch_;
};

}  // namespace trireme
