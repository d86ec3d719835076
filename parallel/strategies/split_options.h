// SplitOptions: the mesh axes that split the layers of a model (parallel/split/split.h splits them).
#pragma once
#include <string>
#include <vector>

namespace trireme {

/// How the ranks along a mesh axis hold weights: a row of a strategy's table of placements.
struct WeightPlacement {
  std::vector<std::string> weights = {};  ///< names of weights, or patterns: "*.fc1.*" (see matches())
  int dim = 0;         ///< the dimension that they divide; negative: from the last. Tensors without it stay whole.
  bool whole = false;  ///< each rank has all; dim is not used
  std::string axis = "tensor";                              ///< of the mesh
  bool operator==(const WeightPlacement&) const = default;  ///< member by member
};

/// Names of mesh axes. An empty name, and an axis of one rank, split nothing.
struct SplitOptions {
  /// Axes that cut images: "h", "w" and "d" (rows, columns and planes of [N, D, H, W, C]; Dryden et al., arXiv
  /// 1903.06681). Each rank has its part of every activation; weights are replicated.
  std::vector<std::string> image = {};
  /// Axis that divides the weights which `placements` leaves open. A weight whose input is divided continues this
  /// division; any other divides its outputs (Shoeybi et al., Megatron-LM, arXiv 1909.08053).
  std::string tensor = {};
  /// Ranks along `tensor` also divide the tokens between products of weights: a sum of activations [B, T, C] leaves
  /// each rank its share of T (sequence parallelism: Korthikanti et al., arXiv 2205.05198).
  bool sequence = false;
  std::vector<WeightPlacement> placements = {};  ///< of weights by name
  /// Axis whose ranks have different rows of the batch, and which cuts fully connected layers by their outputs. These
  /// layers process the rows of all ranks (Krizhevsky 2014, arXiv 1404.5997).
  std::string one_weird_trick = {};

  /// Whether any axis splits layers.
  bool any() const { return !(image.empty() && tensor.empty() && placements.empty() && one_weird_trick.empty()); }
  /// Adds the axes and placements of other. Its `one_weird_trick` replaces this one if it is set. Throws Error for two
  /// axes of `tensor`, and for one_weird_trick together with another split.
  void add(const SplitOptions& other);
  bool operator==(const SplitOptions&) const = default;  ///< member by member
};

}  // namespace trireme
