// RankMesh: the mesh axes over which ranks divide tensors. The framework has no communicators, so parallel/split
// implements the messages.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/tensor/batch.h"
#include "framework/tensor/tensor.h"

namespace trireme {

class NormRanks;  // framework/autograd/norm_ranks.h

/// How attention works if ranks have different tokens (context parallelism).
enum class ContextMode : std::uint8_t {
  gather,   ///< each rank gathers all keys and values (Grattafiori et al., arXiv 2407.21783, section 3.3.2)
  ulysses,  ///< ranks exchange tokens for heads, and back (Jacobs et al., DeepSpeed-Ulysses, arXiv 2309.14509)
  ring      ///< keys and values travel from rank to rank (Liu et al., Ring Attention, arXiv 2310.01889)
};

/// Which tokens of a text each of p ranks has (context parallelism).
enum class ContextCut : std::uint8_t {
  contiguous,  ///< one run
  zigzag,      ///< two runs, of 2 p: rank r has runs r and 2 p - 1 - r, so that causal attention is equal work
  striped      ///< every p-th token (Brandon et al., Striped Attention, arXiv 2311.09431)
};

/// A set of the axes of a RankMesh: bit i is axis i.
using AxisMask = unsigned;

/// The ranks that divide a model's tensors, on named axes, from the view of one rank (compare torch's DeviceMesh).
class RankMesh : public std::enable_shared_from_this<RankMesh> {
 public:
  static constexpr int max_axes = 6;  ///< of one mesh
  /// An axis with the position of this rank.
  struct MeshAxis {
    std::string name;  ///< as in the mesh: "tensor", "h"
    int size;          ///< number of ranks along it
    int index;         ///< position of this rank, in [0, size)
  };
  virtual ~RankMesh() = default;
  RankMesh(const RankMesh&) = delete;
  RankMesh& operator=(const RankMesh&) = delete;

  int axes() const { return static_cast<int>(axes_.size()); }        ///< number of axes
  const std::string& name(int axis) const { return at(axis).name; }  ///< of an axis
  int size(int axis) const { return at(axis).size; }                 ///< ranks along an axis
  int index(int axis) const { return at(axis).index; }               ///< this rank's position along an axis
  int find(const std::string& name) const;                           ///< the axis of this name; -1: not there
  int ranks(AxisMask) const;                                         ///< product of the sizes of these axes
  /// Along these axes the plan of a step sums the gradients of weights that all ranks hold: each rank brings its share.
  AxisMask summed() const { return roles_.summed; }
  /// Along these axes a sum [B, T, C] over ranks leaves each of them its share of the T tokens (sequence parallelism:
  /// Korthikanti et al., arXiv 2205.05198).
  AxisMask sequence() const { return roles_.sequence; }
  /// Along these axes ranks have different tokens [N, T, ...].
  AxisMask context() const { return roles_.context; }
  ContextMode context_mode() const { return roles_.context_mode; }  ///< of attention along context()
  ContextCut context_cut() const { return roles_.context_cut; }     ///< of the tokens along context()
  /// Along these axes ranks have different samples, which the ShardSpec of an activation does not mention: only experts
  /// are divided along them.
  AxisMask apart() const { return roles_.apart; }
  /// The axis along which ranks start with different rows of the batch; -1: all have the same rows.
  int rows() const { return roles_.rows; }
  const std::vector<int>& place() const { return place_; }  ///< this rank's position along each axis
  /// Where the rows of each rank along rows() begin in the batch at hand, and the end.
  const std::vector<Index>& row_borders() const { return row_borders_; }
  void begin_batch(std::vector<Index> row_borders) const;  ///< sets them
  /// The context of a tensor with the rows of all ranks along rows(). own: the context of this rank's rows. Null for
  /// null. The first call for a batch is collective.
  BatchPtr batch_of_all(const BatchPtr& own) const;
  /// The reverse of batch_of_all(): the context of this rank's rows. Other contexts are returned unchanged.
  BatchPtr batch_of_own(const BatchPtr& all) const { return all && all == all_rows_ ? own_rows_ : all; }

  /// The ranks that differ from this one along some axes only, itself included.
  struct Line {
    std::vector<std::vector<int>> at;  ///< their positions along all axes, in an order that all of them share
    std::vector<int> ranks;            ///< their numbers, for send() and recv()
    int me = 0;                        ///< index of this rank
  };
  /// The ranks that differ from this one along `axes` only.
  Line line(AxisMask axes) const;

  /// A message or sum in progress: call it once; it returns when the tensor may be used.
  using Wait = std::function<void()>;
  /// Starts an all-reduce: x = the sum over the ranks of line(axes), in place. Collective.
  virtual Wait start_sum(const View& x, AxisMask axes) const = 0;
  void sum(const View& x, AxisMask axes) const { start_sum(x, axes)(); }  ///< start_sum(), and waits for it
  virtual Wait send(const Tensor& x, int rank) const = 0;                 ///< to another rank
  virtual Wait recv(const Tensor& into, int rank) const = 0;              ///< from another rank
  /// The ranks of line(axes) for the statistics of a batch norm. outer: further ranks, of which each belongs to such a
  /// line; null: none.
  virtual std::shared_ptr<const NormRanks> norm_ranks(AxisMask axes, std::shared_ptr<const NormRanks> outer) const = 0;

 protected:
  /// Members: see the functions of these names.
  struct Roles {
    AxisMask summed = 0, sequence = 0, context = 0, apart = 0;
    int rows = -1;
    ContextMode context_mode = ContextMode::gather;
    ContextCut context_cut = ContextCut::contiguous;
  };
  /// axes: at most max_axes.
  RankMesh(std::vector<MeshAxis> axes, const Roles&);

 private:
  const MeshAxis& at(int axis) const { return axes_[static_cast<std::size_t>(axis)]; }
  std::vector<MeshAxis> axes_;
  std::vector<int> place_;
  Roles roles_;
  mutable std::vector<Index> row_borders_;
  mutable BatchPtr own_rows_, all_rows_;  // of the last batch
};

}  // namespace trireme
