// The bare oneDNN calls of a ResNet-50 training step: every convolution forward and by both backwards, every batch norm
// forward and backward with ReLU (and add) fused where oneDNN 2.6 can. Activations channels last, filters as each
// primitive likes them, no reorders; each tensor has a block of its own, as in a real step, so nothing stays in cache
// that would not there.
#pragma once
#include <memory>
#include <utility>

#include "kernels/contracts/move.h"

namespace trireme {

class VendorCalls {
 public:
  VendorCalls();
  ~VendorCalls();
  VendorCalls(VendorCalls&&) noexcept;
  VendorCalls& operator=(VendorCalls&&) noexcept;
  explicit operator bool() const { return impl_ != nullptr; }
  /// One step. Milliseconds spent in convolutions, and in batch norms.
  std::pair<double, double> run();
  struct Impl;

 private:
  friend VendorCalls resnet50_calls(Index batch, Index size);
  std::unique_ptr<Impl> impl_;
};
VendorCalls resnet50_calls(Index batch, Index size);

}  // namespace trireme
