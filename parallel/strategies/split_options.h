// SplitOptions: the mesh axes that split the layers of a model (parallel/split/split.h splits them).
#pragma once
#include <string>
#include <vector>

#include "framework/tensor/rank_mesh.h"

namespace trireme {

/// How the ranks along a mesh axis hold some weights. The options of place() (parallel/strategies/strategy.h).
struct WeightPlacement {
  std::vector<std::string> weights = {};  ///< names of weights, or patterns: "*.fc1.*" (see matches())
  int dim = 0;         ///< dimension that ranks divide; negative: from the last. Tensors without it stay whole.
  bool whole = false;  ///< true: each rank has the whole weight; dim is not used
  std::string axis = "tensor";                              ///< mesh axis of the ranks
  bool operator==(const WeightPlacement&) const = default;  ///< member by member
};

/// How ranks split the layers of a model: mostly names of mesh axes. An empty name, and an axis of one rank, split
/// nothing.
struct SplitOptions {
  /// Axes that cut images: "h", "w" and "d" (rows, columns and planes of [N, D, H, W, C]; Dryden et al., arXiv
  /// 1903.06681). Each rank has its part of every activation; weights are replicated.
  std::vector<std::string> image = {};
  /// Axis that cuts texts (context parallelism): each rank has its share of the T tokens of ids [N, T], or of
  /// activations [N, T, C], and of every activation after them; weights are replicated.
  std::string context = {};
  ContextMode context_mode = ContextMode::gather;   ///< how attention works along `context`
  ContextCut context_cut = ContextCut::contiguous;  ///< which tokens each rank along `context` has
  /// Axis that divides the weights that `placements` does not name. A weight whose input is divided is divided by its
  /// inputs; any other weight is divided by its outputs (Shoeybi et al., Megatron-LM, arXiv 1909.08053).
  std::string tensor = {};
  /// Sequence parallelism (Korthikanti et al., arXiv 2205.05198): ranks along `tensor` also divide the T tokens of
  /// activations [B, T, C] between products with weights. A sum over ranks is then a reduce-scatter: each rank gets its
  /// share of the tokens.
  bool sequence = false;
  /// Axes whose ranks have different tokens, and different experts of each MixtureOfExperts (GShard: Lepikhin et al.,
  /// arXiv 2006.16668): tokens travel to their experts. An axis that cuts neither samples nor weights must be one over
  /// which the plan divides the batch.
  std::vector<std::string> experts = {};
  std::vector<WeightPlacement> placements = {};  ///< of weights by name; they have priority over `tensor`
  /// Axis whose ranks have different rows of the batch, and that cuts fully connected layers by their outputs. These
  /// layers process the rows of all ranks (Krizhevsky 2014, arXiv 1404.5997).
  std::string one_weird_trick = {};

  /// Whether any axis splits layers.
  bool any() const {
    return !(image.empty() && context.empty() && tensor.empty() && experts.empty() && placements.empty() &&
             one_weird_trick.empty());
  }
  /// The axes whose ranks have different parts of the same samples: `image` and `context`.
  std::vector<std::string> sample_axes() const;
  /// The axes of `experts` that have no other use for layers: their ranks have different samples.
  std::vector<std::string> apart_axes() const;
  /// Adds the axes and placements of other. If other sets `one_weird_trick`, that axis is used. Throws Error for two
  /// different axes `tensor`, and for one_weird_trick together with another split.
  void add(const SplitOptions& other);
  bool operator==(const SplitOptions&) const = default;  ///< member by member
};

}  // namespace trireme
