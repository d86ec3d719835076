// NormRanks: the ranks whose rows batch norm's statistics cover, this one among them. Framework code knows no
// communicators: parallel/ implements this.
#pragma once
#include <functional>

#include "framework/tensor/tensor.h"

namespace trireme {

/// All of the ranks make the same calls in the same order.
class NormRanks {
 public:
  /// An operation under way: called once, it returns when the results may be read.
  using Wait = std::function<void()>;
  virtual ~NormRanks() = default;
  virtual int size() const = 0;  ///< number of ranks, this one included
  /// All-gather: to [size() * n] becomes from [n] of each rank, in an order that all ranks have in common. Collective.
  virtual Wait gather(const Tensor& to, const Tensor& from) const = 0;
  /// All-reduce: x becomes the sum over all ranks, with the same bits on each. Collective.
  virtual Wait sum(const Tensor& x) const = 0;
};

}  // namespace trireme
