// VolumeNet: a model over one volume, of which any box of the result can be computed by itself, or by ranks that hold a
// box each. ChainNet (chain_net.h) is one of any convolutional model, DenseNet (dense_net.h) a mixed-scale dense one,
// SliceNet (slice_net.h) one of pictures over each slice of a volume.
//
// All boxes have the axes [1, spatial..., C], whole volumes too; two or three axes are spatial.
#pragma once
#include <functional>
#include <vector>

#include "parallel/split/grid.h"

namespace trireme {

/// What a box costs to compute.
struct BoxCost {
  double voxels = 0,   ///< of layers, computed, each layer's counted
      operations = 0,  ///< multiplications and additions
      memory = 0;      ///< bytes of tensors at the most
};
/// What one of many ranks costs that have the volume together.
struct ShareCost {
  BoxCost most;          ///< of the rank with most of each
  double voxels = 0;     ///< of all ranks
  double sent = 0;       ///< bytes, of all ranks
  double most_sent = 0;  ///< bytes, of the rank that sends most
  int messages = 0;      ///< exchanges one after the other
};

/// What the ranks of a division do together, one such step after the other: each computes its box of a layer, then
/// those boxes travel of which others want cells.
struct ShareStep {
  std::vector<double> operations;  ///< of each rank
  std::vector<Box> have = {},      ///< what each rank makes
      want = {};                   ///< and shall have then; both empty: nothing travels
};

/// Brings a box of the channels that a net reads, as a tensor of the net's dtype. Called by one thread at a time.
using ReadBox = std::function<Tensor(const Box&)>;

/// Ranks along each spatial axis, outermost first, and the axis of the Grid that they are on; -1: none.
struct Division {
  Extents parts{1, 1, 1};
  std::array<int, 3> axis{-1, -1, -1};
};

class VolumeNet {
 public:
  virtual ~VolumeNet() = default;
  const Shape& input() const { return input_; }    ///< the volume
  const Shape& output() const { return output_; }  ///< the result
  DType dtype() const { return dtype_; }           ///< of all that is computed
  /// Borders of boxes of the result cost least where they are multiples of this, per spatial axis.
  const Extents& granularity() const { return granularity_; }
  /// Cells of the volume beyond a voxel of the result that it depends on, at most, per spatial axis.
  const Extents& reach() const { return reach_; }

  /// The net may be computed in passes over layers [first, last) of these, one behind the other, with what
  /// channels(first) says kept between them.
  virtual int layers() const { return 1; }
  /// Channels behind so many layers, of the volume's extents: those of the volume, then what layers made.
  virtual Index channels(int layers) const { return layers == 0 ? input_[-1] : output_[-1]; }
  /// The box that a pass reads to make `out`: of the result, or where it is not the last of the channels that it adds.
  virtual Box reads(int first, int last, const Box& out) const = 0;
  virtual BoxCost cost(int first, int last, const Box& out) const = 0;
  virtual Tensor run(int first, int last, const ReadBox& read, const Box& out) const = 0;

  /// The box of the result that a rank at these coordinates makes. Throws Error where an axis has fewer cells (or, of
  /// models with strides, blocks of cells) than ranks.
  virtual Box share(const Division&, const Extents& at) const = 0;
  virtual ShareCost cost(const Division&) const = 0;
  /// Of ranks at these coordinates, in their order.
  virtual std::vector<ShareStep> steps(const Division&, const std::vector<Extents>& places) const = 0;
  /// This rank's share, halos exchanged layer by layer. A collective call of the grid's ranks. read: of the volume.
  virtual Tensor run(const Division&, const Grid&, const ReadBox& read) const = 0;

 protected:
  VolumeNet(const Shape& input, DType dtype) : input_(input), output_(input), dtype_(dtype) {}
  Shape input_, output_;
  DType dtype_;
  Extents granularity_{1, 1, 1}, reach_{0, 0, 0};
};

/// The mesh axes d, h and w, of which the last ones are a picture's, along the axes of a volume; grid null: none of the
/// mesh's axes has more than one rank. Throws Error for other names, and for d of a picture.
Division division_of(const std::vector<Axis>& mesh, int spatial_axes, const Grid* grid);
/// The axes of the grid that it divides the volume over.
AxisMask axes_of(const Division&);
/// Coordinates of a rank of the grid along the spatial axes.
Extents place_of(const Division&, const std::vector<int>& at);
/// The coordinates of all ranks of a division.
std::vector<Extents> places_of(const Division&);
/// Those of the ranks of a mesh, by rank: its last axis goes fastest.
std::vector<Extents> places_of(const std::vector<Axis>& mesh, int spatial_axes);
/// All of a volume of this shape.
inline Box whole_box(const Shape& shape) {
  Box box{shape, shape};
  for (int i = 0; i < shape.rank(); ++i) box.at[i] = 0;
  return box;
}
/// The least box that holds both; an empty one counts for nothing.
Box hull(const Box& a, const Box& b);
/// Brings to each rank of the line, of a tensor of which it has box have[me], at `origin` in block, what it wants, into
/// the block itself. Returns the bytes that this rank sent.
double exchange_into(const Grid&, const Grid::Line&, const Tensor& block, const Shape& origin,
                     const std::vector<Box>& have, const std::vector<Box>& want);

}  // namespace trireme
