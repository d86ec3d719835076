// Grid: the mesh axes along which a model's layers are split, with communicators of their own, so that the layers'
// messages cannot mix with others.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/tensor/memory_tracker.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/split/windows.h"

namespace trireme {

/// A set of a Grid's axes: bit i is axis i.
using AxisMask = unsigned;

class Grid {
 public:
  /// axes: those of the mesh to split along; of one rank they are left out. grad_reduce_axes: along these the ranks'
  /// gradients of a weight that all of them hold are summed by the plan, so that each share must reach the sum once. A
  /// collective call. rows: that along which ranks enter with other rows of the batch, if it is one of the axes.
  Grid(Mesh&, const std::vector<std::string>& axes, const std::vector<std::string>& grad_reduce_axes,
       const std::string& rows = {});

  int axes() const { return static_cast<int>(axes_.size()); }
  const std::string& name(int axis) const { return axes_[axis].name; }
  int size(int axis) const { return axes_[axis].size; }
  int index(int axis) const { return at_[axis]; }
  int find(const std::string& name) const;  ///< -1: not there
  AxisMask grad_reduce_axes() const { return grad_reduce_axes_; }
  int rows() const { return rows_; }  ///< -1: the grid's ranks have the same rows

  /// This rank's coordinates, and those of the ranks that differ from it along `axes` only, itself among them.
  const std::vector<int>& at() const { return at_; }
  struct Line {
    std::vector<std::vector<int>> at;  ///< coordinates, in an order that all of them share
    std::vector<int> ranks;            ///< in comm()
    int me = 0;                        ///< position of this rank
  };
  Line line(AxisMask axes) const;
  Communicator& comm() const { return *comm_; }
  /// In place, over the ranks of line(axes).
  void sum(const View&, AxisMask axes) const;
  /// Of the ranks along one axis.
  Communicator& along(int axis) const { return *sums_[axis]; }

 private:
  std::vector<Axis> axes_;
  std::vector<int> at_;
  AxisMask grad_reduce_axes_ = 0;
  int rows_ = -1;
  std::unique_ptr<Communicator> comm_;               // all axes together
  std::vector<std::unique_ptr<Communicator>> sums_;  // one per axis
};

/// Boxes on their way between the ranks of a line. Posted on construction.
class Exchange {
 public:
  /// x is this rank's block, at `origin` of the whole; route's peers are positions in the line.
  Exchange(const Grid&, const Grid::Line&, const Route&, const Tensor& x, const Shape& origin,
           MemoryKind = MemoryKind::packed);
  /// sends: what goes to route's sends, box by box.
  Exchange(const Grid&, const Grid::Line&, const Route&, const std::vector<Tensor>& sends, DType, Device,
           MemoryKind = MemoryKind::packed);
  struct Received {
    Box box;
    Tensor values;
  };
  /// What has come, once it is there.
  const std::vector<Received>& wait();

 private:
  std::vector<Received> received_;
  std::vector<Work> works_;
};

/// A box of the whole, from a block that lies at `origin` of it.
Tensor cut(const Tensor& from, const Shape& origin, const Box&);
/// to = from (or to += from, with add) in `box`; the two blocks lie at their origins of the whole.
void copy_box(const Tensor& to, const Shape& to_origin, const Tensor& from, const Shape& from_origin, const Box& box,
              bool add = false);

}  // namespace trireme
