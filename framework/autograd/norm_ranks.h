// NormRanks: the ranks whose rows batch norm's statistics cover, including this one. The framework has no
// communicators, so parallel/ implements this class.
#pragma once
#include <functional>

#include "framework/tensor/tensor.h"

namespace trireme {

/// All of these ranks must make the same calls in the same order.
class NormRanks {
 public:
  /// An operation in progress: call it once; it returns when the results can be read.
  using Wait = std::function<void()>;
  virtual ~NormRanks() = default;
  virtual int size() const = 0;  ///< number of ranks, including this one
  /// All-gather: to [size() * n] = from [n] of each rank, in the same order on all ranks. Collective.
  virtual Wait gather(const Tensor& to, const Tensor& from) const = 0;
  /// All-reduce: x = the sum over all ranks, with the same bits on each. Collective.
  virtual Wait sum(const Tensor& x) const = 0;
};

}  // namespace trireme
