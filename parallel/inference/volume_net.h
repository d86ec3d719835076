// VolumeNet: a model over one volume. Any box of the result can be computed alone, or by ranks that hold one box each.
// ChainNet (chain_net.h) supports convolutional models, DenseNet (dense_net.h) mixed-scale dense networks, SliceNet
// (slice_net.h) 2-D models on each slice.
//
// All boxes, and whole volumes, have the axes [1, spatial..., C] with two or three spatial axes.
#pragma once
#include <functional>
#include <vector>

#include "parallel/split/grid.h"

namespace trireme {

/// Cost of computing a box.
struct BoxCost {
  double voxels = 0,   ///< computed voxels, summed over layers
      operations = 0,  ///< multiplications and additions
      memory = 0;      ///< most bytes of tensors
};
/// Cost of the ranks that divide a volume.
struct ShareCost {
  BoxCost most;          ///< each member: of the rank with most of it
  double voxels = 0;     ///< over all ranks
  double sent = 0;       ///< bytes, over all ranks
  double most_sent = 0;  ///< bytes, of the rank that sends most
  int messages = 0;      ///< number of consecutive exchanges
};

/// One of the consecutive steps of a division: each rank computes its box of a layer, then sends cells that other ranks
/// need.
struct ShareStep {
  std::vector<double> operations;  ///< by rank
  std::vector<Box> have = {},      ///< box that each rank computes
      want = {};                   ///< box that each rank needs then; both empty: no exchange
};

/// Reads a box of the net's input channels as a tensor of the net's dtype. Called by one thread at a time.
using ReadBox = std::function<Tensor(const Box&)>;

/// Ranks along each spatial axis, outermost first, and the Grid's axis for it; -1: none.
struct Division {
  Extents parts{1, 1, 1};
  std::array<int, 3> axis{-1, -1, -1};
};

class VolumeNet {
 public:
  virtual ~VolumeNet() = default;
  const Shape& input() const { return input_; }    ///< the volume
  const Shape& output() const { return output_; }  ///< the result
  DType dtype() const { return dtype_; }           ///< of all tensors
  /// Box borders at multiples of this are cheapest, per spatial axis.
  const Extents& granularity() const { return granularity_; }
  /// Distance in cells of the volume on which a result voxel depends, per spatial axis.
  const Extents& reach() const { return reach_; }

  /// The net can be computed in consecutive passes over layers [first, last); channels(first) channels are stored
  /// between passes.
  virtual int layers() const { return 1; }
  /// Channels after that many layers, with the volume's extents: the volume's channels, then the channels that layers
  /// have added.
  virtual Index channels(int layers) const { return layers == 0 ? input_[-1] : output_[-1]; }
  /// The box that a pass reads to compute `out`: a box of the result, or for other passes of the channels that it adds.
  virtual Box reads(int first, int last, const Box& out) const = 0;
  virtual BoxCost cost(int first, int last, const Box& out) const = 0;
  virtual Tensor run(int first, int last, const ReadBox& read, const Box& out) const = 0;

  /// The box of the result that the rank at these coordinates computes. Throws Error if an axis has fewer cells (for
  /// models with strides: blocks of cells) than ranks.
  virtual Box share(const Division&, const Extents& at) const = 0;
  virtual ShareCost cost(const Division&) const = 0;
  /// The steps of the ranks at these coordinates, in that order.
  virtual std::vector<ShareStep> steps(const Division&, const std::vector<Extents>& places) const = 0;
  /// Computes this rank's share with a halo exchange per layer. A collective call of the grid's ranks. read: reads the
  /// volume.
  virtual Tensor run(const Division&, const Grid&, const ReadBox& read) const = 0;

 protected:
  VolumeNet(const Shape& input, DType dtype) : input_(input), output_(input), dtype_(dtype) {}
  Shape input_, output_;
  DType dtype_;
  Extents granularity_{1, 1, 1}, reach_{0, 0, 0};
};

/// Maps the mesh axes d, h and w to the axes of a volume; a picture has h and w. grid null: no mesh axis has more than
/// one rank. Throws Error for other names, and for d of a picture.
Division division_of(const std::vector<Axis>& mesh, int spatial_axes, const Grid* grid);
/// The grid's axes over which the volume is divided.
AxisMask axes_of(const Division&);
/// Coordinates of a rank along the spatial axes.
Extents place_of(const Division&, const std::vector<int>& at);
/// The coordinates of all ranks of a division.
std::vector<Extents> places_of(const Division&);
/// The coordinates of all ranks of a mesh, by rank; the last axis varies fastest.
std::vector<Extents> places_of(const std::vector<Axis>& mesh, int spatial_axes);
/// The whole volume of this shape.
inline Box whole_box(const Shape& shape) {
  Box box{shape, shape};
  for (int i = 0; i < shape.rank(); ++i) box.at[i] = 0;
  return box;
}
/// The smallest box that contains both; an empty box is ignored.
Box hull(const Box& a, const Box& b);
/// Exchanges cells along a line of ranks. Rank r has box have[r] of a tensor; this rank's part is in `block` at
/// `origin`. Afterwards the block also holds the box that this rank wants. Returns the bytes that this rank sent.
double exchange_into(const Grid&, const Grid::Line&, const Tensor& block, const Shape& origin,
                     const std::vector<Box>& have, const std::vector<Box>& want);

}  // namespace trireme
