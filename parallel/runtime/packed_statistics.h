// PackedStatistics: the mean of running statistics over ranks, packed into one block, so that it is one collective
// however many layers have some.
#pragma once
#include "framework/optim/parameters.h"
#include "parallel/comm/communicator.h"

namespace trireme {

class PackedStatistics {
 public:
  /// Starts the sum of those that lie in a slice of all buffers, packed one behind the other.
  Work start(Communicator&, const ParameterStore&, const Slice&);
  /// Once that is done: they become the mean.
  void finish(const Communicator&, const ParameterStore&, const Slice&) const;

 private:
  Tensor block_;
};

}  // namespace trireme
