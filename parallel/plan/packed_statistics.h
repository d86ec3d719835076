// The mean of batch norms' running statistics over ranks. They are copied into one block, so that all layers share one
// collective.
#pragma once
#include "framework/optim/parameters.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// Replaces the store's buffers in a slice of the packed buffers by their mean over the ranks, when the Work is done.
/// The store must outlive the Work. A collective call.
Work average_statistics(Communicator&, const ParameterStore&, const Slice&);

}  // namespace trireme
