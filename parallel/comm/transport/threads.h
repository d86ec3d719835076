// Communicators between threads of this process.
#pragma once
#include <vector>

#include "parallel/comm/communicator.h"

namespace trireme {

/// One communicator for each of `ranks` threads. A collective is done by the ranks that wait for it: they take pieces
/// of the buffers, reduce each over all ranks in rank order (one result, the same bits on every rank) and write it to
/// all. So nothing runs in the background, no rank has to wait for its peers to wait, and waits may come in any order.
std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks);
/// A world of one.
std::unique_ptr<Communicator> single_communicator();

}  // namespace trireme
