// The mean of running statistics over ranks. They are packed into one block, so that one collective serves all layers.
#pragma once
#include "framework/optim/parameters.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// Replaces the store's buffers in a slice of the packed buffers by their mean over the ranks. The store must outlive
/// the Work.
Work average_statistics(Communicator&, const ParameterStore&, const Slice&);

}  // namespace trireme
