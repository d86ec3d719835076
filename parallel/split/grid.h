// Grid: the mesh axes along which a model's layers are split, with communicators of their own, so that the layers'
// messages cannot mix with others.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/ops/moves.h"
#include "parallel/comm/world/mesh.h"

namespace trireme {

class Grid final : public RankMesh {
 public:
  /// Axes with a role of their own: the names of those of RankMesh::rows(), sequence(), context() and apart(); empty:
  /// none.
  struct Roles {
    std::string rows = {}, sequence = {}, context = {};
    std::vector<std::string> apart = {};
    ContextMode context_mode = ContextMode::gather;   ///< RankMesh::context_mode()
    ContextCut context_cut = ContextCut::contiguous;  ///< RankMesh::context_cut()
  };
  /// axes: those of the mesh to split along; axes of one rank are left out. grad_reduce_axes: along these the plan sums
  /// the gradients of a weight that all ranks hold (RankMesh::summed). Collective.
  Grid(Mesh&, const std::vector<std::string>& axes, const std::vector<std::string>& grad_reduce_axes, const Roles&);
  Grid(Mesh& mesh, const std::vector<std::string>& axes, const std::vector<std::string>& grad_reduce_axes)
      : Grid(mesh, axes, grad_reduce_axes, Roles{}) {}  ///< without such axes

  Wait start_sum(const View&, AxisMask axes) const override;
  Wait send(const Tensor&, int rank) const override;
  Wait recv(const Tensor&, int rank) const override;
  std::shared_ptr<const NormRanks> norm_ranks(AxisMask, std::shared_ptr<const NormRanks> outer) const override;
  /// Of the ranks of all axes.
  Communicator& comm() const { return *comm_; }
  /// Of the ranks along one axis.
  Communicator& along(int axis) const { return *sums_[static_cast<std::size_t>(axis)]; }

 private:
  struct Chosen;  // axes of a mesh
  Grid(Mesh&, const Chosen&);
  std::unique_ptr<Communicator> comm_;
  std::vector<std::unique_ptr<Communicator>> sums_;  // one per axis
};

}  // namespace trireme
