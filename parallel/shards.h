// Shards: how the ranks of an axis share a slice of the flat block, and the collectives between whole and shares
// (ZeRO: Rajbhandari et al., arXiv 1910.02054).
#pragma once
#include "framework/parameters.h"
#include "parallel/communicator.h"

namespace trireme {

/// The stretch of slice that rank `rank` of `ranks` updates: equal ones, the last longer by the remainder.
Slice shard_of(const Slice& slice, int rank, int ranks);
/// Sums x [n], the gradients of a slice, so that each rank holds the sum of its own shard; the rest of x is undefined.
Work reduce_shards(Communicator&, const Tensor& x);
/// From each rank its own shard of x [n], so that all hold the whole of it.
Work gather_shards(Communicator&, const Tensor& x);

}  // namespace trireme
