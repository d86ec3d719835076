// Shards: how the ranks of an axis share a slice of the flat block, and the collectives between whole and shares
// (ZeRO: Rajbhandari et al., arXiv 1910.02054).
#pragma once
#include "parallel/comm/communicator.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// The segment of slice that rank `rank` of `ranks` updates: equal ones, the last longer by the remainder.
Slice shard_of(const Slice& slice, int rank, int ranks);
/// The same of an action that has them share its slice: all of it for its root, if it has one, and nothing for others.
Slice shard_of(const Action&, int rank, int ranks);
/// The mesh axes whose ranks divide updates of the program, joined by +; empty: none. Updates of weights that ranks
/// divide already may leave axes out.
std::string shard_axis(const Program&);
/// Puts memory behind a slice, before it is written as a whole.
void restore_pages(const FlatBuffer&, const Slice&);
/// Gives back the memory of a slice of the gradients, but for a segment of it: the next backward writes them again.
void release_gradients(Parameters&, const Slice&, const Slice& but);
/// The same of weights, which are an Error to read from then on: restore_pages() comes before they are written.
void release_values(Parameters&, const Slice&, const Slice& but);
/// Sums x [n], the gradients of a slice, so that each rank holds the sum of its own shard; the rest of x is undefined.
Work reduce_shards(Communicator&, const Tensor& x);
/// x is the action's slice of a flat block, of which each rank has updated its shard (or the root all): brings it to
/// all ranks. Both are collective calls.
Work all_gather_updated(const Action&, Communicator&, const Tensor& x);

}  // namespace trireme
