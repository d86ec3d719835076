// What a box of a window layer's output reads of its input, on all axes at once.
#pragma once
#include <vector>

#include "kernels/contracts/pool.h"
#include "parallel/split/sharded_ops.h"

namespace trireme {

/// One Window per spatial axis of x [N, spatial..., C].
std::vector<Window> windows(const Shape& filter, const ConvOptions&);
std::vector<Window> windows(int spatial_axes, const PoolOptions&);
/// The output's extents over a whole input; its last is the input's.
Shape outputs(const Shape& whole, const std::vector<Window>&);

/// The inputs behind the box `out` of the output, and the padding that lies in its reach.
struct Patch {
  Box inputs;     ///< of the whole; axis 0 and the last as in `have`
  Shape extents;  ///< inputs.size, but where only padding is read: as many zeros as the windows cover
  Extents before{0, 0, 0}, behind{0, 0, 0};
};
Patch patch(const Box& out, const Box& have, const std::vector<Window>&, const Shape& whole);
/// The outputs in `out` that read nothing outside `have`.
Box inner(const Box& out, const Box& have, const std::vector<Window>&, const Shape& whole);

/// The grid's axes that divide x's spatial axes.
AxisMask spatial_axes(const ShardedOps& x);
/// What each rank of the line has of the input, and what its box of the output reads.
struct Halo {
  Grid::Line line;
  std::vector<Box> have, want;
  Halo(const ShardedOps& has, const ShardedOps& out, const std::vector<Window>&);
};

}  // namespace trireme
