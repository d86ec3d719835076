// Shards: how the ranks of an axis divide a slice of the flat block (ZeRO: Rajbhandari et al., arXiv 1910.02054), and
// the collectives that reduce a slice to shards and gather a slice from shards.
#pragma once
#include "parallel/comm/communicator.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// The shard of the slice that rank `rank` of `ranks` updates. Shards have equal sizes; the last one also has the
/// remainder.
Slice shard_of(const Slice& slice, int rank, int ranks);
/// The shard of an action's slice. If the action has a root, the root's shard is the whole slice, and other ranks'
/// shards are empty.
Slice shard_of(const Action&, int rank, int ranks);
/// The mesh axes whose ranks divide updates of the program, joined by +; empty: none. An update of weights that ranks
/// hold in parts already may use fewer of these axes.
std::string shard_axis(const Program&);
/// Whether ranks have only their shards of the weights between steps, because each step gathers the weights that the
/// step before has updated (ZeRO).
bool keeps_shards(const Program&);
/// Allocates physical memory for a slice again; call it before the whole slice is written.
void restore_pages(const FlatBuffer&, const Slice&);
/// Bytes of a slice that have physical memory (Runtime::resident).
std::size_t resident_bytes(const FlatBuffer&, const Slice&);
/// Sets a slice to 0 and returns its physical memory to the system; call restore_pages() before its next use.
void zero_pages(const FlatBuffer&, const Slice&);
/// Returns the physical memory of a slice of the gradients to the system, except that of the shard `but`. The next
/// backward allocates it again.
void release_gradients(Parameters&, const Slice&, const Slice& but);
/// Returns the physical memory of a slice of the weights to the system, except that of the shard `but`. Reading the
/// weights afterwards throws Error; call restore_pages() before writing them.
void release_values(Parameters&, const Slice&, const Slice& but);
/// Sums x [n], the gradients of a slice, over ranks (reduce_scatter). When the Work is done, x has the sum in the
/// rank's shard, and undefined numbers elsewhere. A collective call.
Work reduce_shards(Communicator&, const Tensor& x);
/// Sums shards that reduce_shards() has made over their replicas. x [n]: the gradients of the slice; share: index of
/// this rank's shard, of `shares`. Afterwards x has the sum in the rank's shard. A collective call.
Work sum_shards(Communicator& replicas, const Tensor& x, int share, int shares);
/// Brings the shards that the ranks have updated to all ranks; if the action has a root, the root's slice. x [n]: the
/// action's slice of a flat block. A collective call.
Work all_gather_updated(const Action&, Communicator&, const Tensor& x);

}  // namespace trireme
