// ShardSpec: how ranks divide a tensor (compare PyTorch's DTensor). Plain data: the global shape and, for each axis of
// a RankMesh, the dimension that it divides. Ops read it, and move tensors where they must (framework/ops/place.h).
#pragma once
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor/box.h"
#include "framework/tensor/rank_mesh.h"

namespace trireme {

/// For each mesh axis: the tensor's dimension that it divides, or `copy`: its ranks hold copies. Several mesh axes may
/// divide one dimension: the first of them cuts it into the largest pieces.
struct Placements {
  static constexpr int copy = -1;  ///< the axis divides no dimension
  /// By mesh axis: a dimension, from 0, or copy.
  std::array<std::int8_t, RankMesh::max_axes> dims{copy, copy, copy, copy, copy, copy};

  int operator[](int axis) const { return dims[static_cast<std::size_t>(axis)]; }  ///< the dimension, or copy
  AxisMask over(int dim) const;                        ///< the mesh axes that divide a dimension
  AxisMask axes() const;                               ///< the mesh axes that divide any dimension
  Placements with(int dim, AxisMask axes) const;       ///< the same, with these axes and no others dividing `dim`
  Placements without(AxisMask axes) const;             ///< the same, with copies along these axes
  bool operator==(const Placements&) const = default;  ///< axis by axis
};

/// [begin, end) of part `index` of `parts` of an extent: sizes differ by at most one.
std::pair<Index, Index> even_share(Index extent, int parts, int index);

/// How ranks share one dimension if not evenly by elements.
struct Shares {
  /// A range of the dimension; a rank has a share of each. So a fused weight of queries, keys and values is cut in each
  /// of the three.
  struct Range {
    Index extent;                                   ///< number of elements
    Index unit = 1;                                 ///< elements that stay together (such as a head's); divides extent
    bool operator==(const Range&) const = default;  ///< member by member
  };
  std::vector<Range> ranges = {};   ///< consecutive ranges; empty: one range, the whole dimension
  std::vector<Index> borders = {};  ///< of a single range: where the ranks' shares begin, and the end; empty: even
  bool tokens = true;  ///< false: RankMesh::context_cut() is not for this dimension, though context() divides it
  bool fits(Index size) const;          ///< whether every share begins and ends at a multiple of `size` elements
  Shares divided_by(Index size) const;  ///< of a dimension with an element for each `size` elements of this; fits(size)
  /// Of a dimension with `size` elements for each element of this, which has `extent`.
  Shares times(Index extent, Index size) const;
  bool is_even() const { return ranges.empty() && borders.empty(); }  ///< by elements
  bool empty() const { return is_even() && tokens; }                  ///< says nothing
  bool operator==(const Shares&) const = default;                     ///< member by member
};

/// Shared and immutable: all tensors with equal placements may point to one ShardSpec. A weight's ShardSpec may divide
/// nothing: other ranks then hold copies, and the step's plan sums its gradients over RankMesh::summed().
class ShardSpec : public std::enable_shared_from_this<ShardSpec> {
 public:
  using Ptr = std::shared_ptr<const ShardSpec>;  ///< null: ranks do not divide the tensor
  using Mesh = std::shared_ptr<const RankMesh>;  ///< the ranks that divide it
  /// shares: of the dimension shared_dim; empty: even shares, as on all others.
  static Ptr make(Mesh, const Shape& global, const Placements&, Shares shares = {}, int shared_dim = 0);
  /// Of a weight: the plan sums its gradient over RankMesh::summed(), but for the axes that divide it.
  static Ptr of_weight(Mesh, const Shape& global, const Placements&, Shares shares = {}, int shared_dim = 0);

  const Shape& global_shape() const { return global_; }           ///< of the whole tensor over all ranks
  const Placements& placements() const { return placements_; }    ///< how it is divided
  AxisMask over(int dim) const { return placements_.over(dim); }  ///< the mesh axes that divide a dimension
  Shares shares(int dim) const;                                   ///< empty: even shares
  int shared_dim() const {
    return shares_.empty() ? -1 : shared_dim_;
  }                                                         ///< the dimension without even shares; -1: none
  const RankMesh& mesh() const { return *mesh_; }           ///< the ranks
  const Mesh& shared_mesh() const { return mesh_; }         ///< the ranks, to keep
  bool weight() const { return weight_; }                   ///< made by of_weight()
  bool divides() const { return placements_.axes() != 0; }  ///< whether ranks have different parts
  /// The axes over which the plan sums the gradient; none for an activation.
  AxisMask summed() const { return summed_; }
  /// The same placements, for a weight whose gradient the plan sums over these axes only.
  Ptr summed_over(AxisMask) const;

  /// The parts of the global tensor that the rank at a place of the mesh has: of each dimension one run per range of
  /// shared_dim(), and several where RankMesh::context_cut() gives it several. Their boxes are joined in its block.
  std::vector<Box> boxes(const std::vector<int>& place) const;
  using Run = std::pair<Index, Index>;                                  ///< begin and end of indices of a dimension
  std::vector<Run> runs(int dim, const std::vector<int>& place) const;  ///< of a dimension of a rank's block, ascending
  std::vector<Run> runs(int dim) const { return runs(dim, mesh_->place()); }  ///< this rank's
  std::vector<Box> boxes() const { return boxes(mesh_->place()); }            ///< this rank's
  Box box(const std::vector<int>& place) const;          ///< the only one. Throws Error if there are several.
  Box box() const { return box(mesh_->place()); }        ///< this rank's
  Shape block(const std::vector<int>& place) const;      ///< the shape of a rank's block
  Shape block() const { return block(mesh_->place()); }  ///< this rank's
  /// Where each of boxes() begins in the block of the rank.
  std::vector<Shape> origins(const std::vector<Box>&) const;
  /// Number of elements of the largest block of all ranks. A flat buffer reserves that many, so that its layout is the
  /// same on all ranks.
  Index max_local_numel() const;
  /// Another tensor on the same mesh.
  Ptr with(const Shape& global, const Placements&, Shares shares = {}, int shared_dim = 0) const;
  /// Replaces x, numbers about this rank's part, by the sum over the ranks that have different parts, without those
  /// along the axes `but`. Collective.
  void sum(const Tensor& x, AxisMask but = 0) const;

 private:
  ShardSpec(Mesh, const Shape& global, const Placements&, Shares, int shared_dim, bool weight);
  std::vector<Run> shares_of(Index extent, int dim, const std::vector<int>& place) const;

  Shape global_;
  Placements placements_;
  Shares shares_;
  int shared_dim_;
  bool weight_;
  AxisMask summed_;
  Mesh mesh_;
};

/// "[2304, 768] divided(0) over tensor; 3 ranges in units of 64"; "[768] copies" without a division.
std::string to_string(const ShardSpec&);

/// Whether other ranks have the rest of a tensor.
inline bool is_part(const Tensor& t) { return t.shard_spec() && t.shard_spec()->divides(); }

}  // namespace trireme
