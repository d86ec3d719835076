// HostCopy: a tensor's numbers on their way to the host. A device goes on with what it is given later, and whoever asks
// waits only for what came before the reading was started.
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
