// SplitOptions: which mesh axes split the layers of a model (parallel/split/split.h does it).
#pragma once
#include <string>
#include <vector>

namespace trireme {

/// Names of mesh axes. An empty name, or an axis of one rank, splits nothing.
struct SplitOptions {
  /// Axes that cut images: "h", "w" and "d" (rows, columns and planes of [N, D, H, W, C]; Dryden et al., arXiv
  /// 1903.06681). Each rank has its rows of every activation; weights are copied.
  std::vector<std::string> image = {};
  /// Axis that cuts weights: of two fully connected layers in a row the first by its outputs, the second by its inputs
  /// (Shoeybi et al., Megatron-LM, arXiv 1909.08053), and alike the filters and channels of convolutions, with the
  /// batch norms between them.
  std::string tensor = {};
  // Layers by name ("fc1") that do not take turns under `tensor` (Megatron-LM's ColumnParallelLinear,
  // RowParallelLinear).
  std::vector<std::string> columns = {},  ///< layers by name that `tensor` cuts by their outputs
      rows = {},                          ///< layers by name that `tensor` cuts by their inputs
      whole = {};                         ///< layers by name that `tensor` leaves whole on every rank
  /// Axis over which the ranks' rows of the batch differ, and which cuts fully connected layers by their outputs: these
  /// see the rows of all ranks (Krizhevsky 2014, arXiv 1404.5997).
  std::string one_weird_trick = {};

  /// Whether an axis is named that splits layers.
  bool any() const { return !image.empty() || !tensor.empty() || !one_weird_trick.empty(); }
  /// Adds the axes and layers of other; its `tensor` and `one_weird_trick`, if named, take the place of these. Throws
  /// Error where one_weird_trick meets another split.
  void add(const SplitOptions& other);
  bool operator==(const SplitOptions&) const = default;  ///< member by member
};

}  // namespace trireme
