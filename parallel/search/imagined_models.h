// Imagined models: what a model is on one rank of a mesh that is not there, under any split of its layers: weights,
// costs and what its layers send, by dry runs over shapes (parallel/model/dry_run.h), and the lines through them. It is
// what search() asks for as RankModelOf.
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

struct ImaginedModelOptions {
  std::function<Module(bool recompute)> model;                   ///< makes it anew: layers are split in place
  std::function<std::pair<Tensor, Tensor>(Index rows)> samples;  ///< x and labels; shapes, types and places count
  Loss loss = {};                                                ///< null: none
  /// From a text, with what the run's settings say besides.
  std::function<Strategy(const std::string&)> strategy = [](const std::string& text) { return parse_strategy(text); };
  double operations_per_second = 1e12;  ///< of a device of speed 1, for costs that are counted
  /// Seconds that the parts of the whole model take for so many rows; null: counted from shapes. What a split leaves of
  /// them on a rank is always counted.
  std::function<std::vector<PartCost>(Index rows)> costs = {};
};

/// Bytes and seconds are lines over the rows through the dry runs beside them: of models that keep much for a row,
/// whose kernels do alike for any number of them, two for each split; of others those of powers of two. What layers
/// send over the ranks that share a batch is that of two such ranks, gathered vectors longer in proportion. Where
/// images are cut it is that of a rank in the middle.
class ImaginedModels {
 public:
  explicit ImaginedModels(ImaginedModelOptions);
  /// RankModelOf. Keeps what it has found.
  std::optional<RankModel> operator()(const LayerSplit&, bool recompute, Index rows, int data);
  /// Why the last split that was refused was so; empty: none was.
  const std::string& refusal() const { return refusal_; }
  /// Layers that have a product, by name and the shape of their weight, in order.
  std::vector<std::pair<std::string, Shape>> products();
  /// Whether layers that run again keep less.
  bool can_recompute();
  /// The most parts that the model's chain has.
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
  void charge(RankModel&, const LayerSplit&, bool recompute, Index rows);
  Index most_rows();

  ImaginedModelOptions o_;
  std::map<std::string, std::optional<RankModel>> points_;
  std::map<Index, std::vector<PartCost>> costs_;  // of the whole model, by rows
  Index most_rows_ = 0;                           // of a dry run; 0: not known yet
  std::string refusal_;
};

/// Splits over an axis `tensor` of so many ranks that the model takes: all layers that can be split, and of these the
/// best choices part by part (layer_splits.h) for rows of a micro-batch over a link; none: no layer can be split. Which
/// layers can be is found by splitting those that have a name, but for numbers in it, and a shape in common.
std::vector<LayerSplit> tensor_splits(ImaginedModels&, int ranks, Index rows, const Link&);

}  // namespace trireme
