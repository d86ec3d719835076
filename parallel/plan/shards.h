// Shards: how the ranks of an axis divide a slice of the flat block, and the collectives between slice and shards
// (ZeRO: Rajbhandari et al., arXiv 1910.02054).
#pragma once
#include "parallel/comm/communicator.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// The segment of slice that rank `rank` of `ranks` updates. Segments have equal sizes; the last one also has the
/// remainder.
Slice shard_of(const Slice& slice, int rank, int ranks);
/// The same for an action whose slice the ranks divide. If the action has a root, the root has all of the slice and the
/// other ranks have nothing.
Slice shard_of(const Action&, int rank, int ranks);
/// The mesh axes whose ranks divide updates of the program, joined by +; empty: none. Updates of weights that ranks
/// divide already may leave axes out.
std::string shard_axis(const Program&);
/// Maps physical memory for a slice again, before all of it is written.
void restore_pages(const FlatBuffer&, const Slice&);
/// Returns the memory of a slice of the gradients, except the segment `but`, to the system. The next backward writes
/// the gradients again.
void release_gradients(Parameters&, const Slice&, const Slice& but);
/// The same for weights. Reading them afterwards throws Error; call restore_pages() before writing them.
void release_values(Parameters&, const Slice&, const Slice& but);
/// Sums x [n], the gradients of a slice, over ranks (reduce_scatter). Each rank gets the sum of its shard; the rest of
/// x is undefined. A collective call.
Work reduce_shards(Communicator&, const Tensor& x);
/// Brings the shards that the ranks have updated (or the slice that the root has updated) to all ranks. x: the action's
/// slice of a flat block. A collective call.
Work all_gather_updated(const Action&, Communicator&, const Tensor& x);

}  // namespace trireme
