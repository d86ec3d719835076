// ImaginedModels: the model on one rank of an imagined mesh, under any split of its layers: weights, costs and
// communication. They come from dry runs over shapes (parallel/model/dry_run.h) and from interpolation between these.
// search() uses it as RankModelOf.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/layers/module.h"
#include "framework/ops/ops.h"
#include "parallel/search/bounds.h"
#include "parallel/strategies/strategy.h"

namespace trireme {

/// Options of ImaginedModels.
struct ImaginedModelOptions {
  std::function<Module(bool recompute)> model;                   ///< builds a new model for each call, since layers are
                                                                 ///< split in place
  std::function<std::pair<Tensor, Tensor>(Index rows)> samples;  ///< x and labels; only shapes, types and devices
                                                                 ///< matter
  Loss loss = {};                                                ///< null: none
  bool keeps_outputs = false;  ///< whether StepOptions::keep_outputs is given: no predictions stay divided
  /// Parses a strategy and applies the run's other settings.
  std::function<Strategy(const std::string&)> strategy = [](const std::string& text) { return parse_strategy(text); };
  DeviceRates rates = {};  ///< of a device of speed 1, for counted costs
  /// Measured seconds of the whole model's parts for that many rows; null: counted from shapes. A rank's share under a
  /// split is always counted.
  std::function<std::vector<PartCost>(Index rows)> costs = {};
};

/// Computes the model of one rank for splits, rows and numbers of data ranks, with as few dry runs as possible:
/// - Bytes and seconds are linear in the rows. There are two dry runs for each split if a model stores much per row and
///   has the same kernels for any number of rows. Else there is one for each power of two, with interpolation.
/// - Communication of layers over the ranks that share a batch is computed for two ranks; gathered vectors grow in
///   proportion to the ranks.
/// - If images are cut, each part has what the first, second and last rank have at most.
/// - If texts are cut, the rank is the one whose causal attention takes longest: the last one, except under ulysses,
///   which divides heads.
class ImaginedModels {
 public:
  explicit ImaginedModels(ImaginedModelOptions);
  /// Implements RankModelOf. Caches its results.
  std::optional<RankModel> operator()(const LayerSplit&, bool recompute, Index rows, int data);
  /// Reason why the last impossible split was refused; empty: none was.
  const std::string& refusal() const { return refusal_; }
  /// Layers with a matrix product: name and shape of the weight, in order.
  std::vector<std::pair<std::string, Shape>> products();
  /// Whether activation checkpointing reduces the stored activations.
  bool can_recompute();
  /// Number of parts of the model's chain.
  int parts();

 private:
  static constexpr Index few = 2, many = 8;  // rows of the two dry runs
  struct Line {
    RankModel at_few, at_many;
    Index few, many;  // rows
    double share_of(Index rows) const { return static_cast<double>(rows - few) / static_cast<double>(many - few); }
  };
  std::optional<Line> line(const LayerSplit&, bool recompute, int data, Index rows);
  const std::optional<RankModel>& point(const LayerSplit&, bool recompute, int data, Index rows);
  RankModel imagine(const LayerSplit&, bool recompute, int data, Index rows);
  /// place: of the rank along axes that cut inputs; 0: first, 1: last, 2: second.
  RankModel imagine_at(const LayerSplit&, bool recompute, int data, Index rows, int place);
  void charge(RankModel&, const LayerSplit&, bool recompute, Index rows);
  Index most_rows();

  ImaginedModelOptions o_;
  std::map<std::string, std::optional<RankModel>> points_;
  std::map<Index, std::vector<PartCost>> costs_;  // of the whole model, by rows
  Index most_rows_ = 0;                           // of a dry run; 0: not computed yet
  std::string refusal_;
};

/// Ways to cut texts over an axis `context` of `ranks` ranks: each mode of attention that the model allows, and the
/// cuts of tokens with which a rank has less work than with contiguous ones, as in causal attention.
std::vector<LayerSplit> context_splits(ImaginedModels&, int ranks);

/// Splits of layers over an axis `tensor` of `ranks` ranks: first all layers that can be split, then the best choices
/// of layers, part by part (layer_splits.h), for `rows` per micro-batch over a link; last, sequence parallelism of all
/// these layers, if it divides the tokens of any sum. Empty: no layer can be split. Layers with the same shape and the
/// same name without numbers are tried together.
std::vector<LayerSplit> tensor_splits(ImaginedModels&, int ranks, Index rows, const Link&);

}  // namespace trireme
