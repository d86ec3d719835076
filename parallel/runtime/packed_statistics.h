// The mean of running statistics over ranks, packed into one block, so that it is one collective however many layers
// have some.
#pragma once
#include "framework/optim/parameters.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// Those of the store's buffers that lie in a slice of all buffers, packed one behind the other, become their mean over
/// the ranks. The store must outlive the Work.
Work average_statistics(Communicator&, const ParameterStore&, const Slice&);

}  // namespace trireme
