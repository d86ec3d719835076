// SplitOptions: the mesh axes that split the layers of a model (parallel/split/split.h splits them).
#pragma once
#include <string>
#include <vector>

namespace trireme {

/// Names of mesh axes. An empty name, and an axis of one rank, split nothing.
struct SplitOptions {
  /// Axes that cut images: "h", "w" and "d" (rows, columns and planes of [N, D, H, W, C]; Dryden et al., arXiv
  /// 1903.06681). Each rank has its part of every activation; weights are replicated.
  std::vector<std::string> image = {};
  /// Axis that cuts weights. Of two consecutive fully connected layers it cuts the first by its outputs, the second by
  /// its inputs (Shoeybi et al., Megatron-LM, arXiv 1909.08053). In the same way it cuts the filters and channels of
  /// convolutions, with the batch norms between them.
  std::string tensor = {};
  // Layers by name ("fc1") that are exceptions from this alternation (Megatron-LM's ColumnParallelLinear,
  // RowParallelLinear).
  std::vector<std::string> columns = {},  ///< layers by name that `tensor` cuts by their outputs
      rows = {},                          ///< layers by name that `tensor` cuts by their inputs
      whole = {};                         ///< layers by name that `tensor` leaves whole on every rank
  /// Axis whose ranks have different rows of the batch, and which cuts fully connected layers by their outputs. These
  /// layers see the rows of all ranks (Krizhevsky 2014, arXiv 1404.5997).
  std::string one_weird_trick = {};

  /// Whether any axis splits layers.
  bool any() const { return !image.empty() || !tensor.empty() || !one_weird_trick.empty(); }
  /// Adds the axes and layers of other. Its `tensor` and `one_weird_trick` replace these if they are set. Throws Error
  /// for one_weird_trick together with another split.
  void add(const SplitOptions& other);
  bool operator==(const SplitOptions&) const = default;  ///< member by member
};

}  // namespace trireme
