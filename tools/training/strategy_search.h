// StrategySearch: search() (parallel/search/search.h) for the model, batch and strategy settings of a run, on ranks of
// a described cluster; and its result as settings of that run.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/profile/machine_profile.h"
#include "parallel/search/imagined_models.h"
#include "parallel/search/search.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// The input of a search.
struct StrategyQuestion {
  int ranks = 1;
  Cluster cluster = {};  ///< with a device for each rank
  Index memory = 0;      ///< bytes available to a rank; 0: unlimited
  /// Measured durations of the model's parts; none: computed from shapes and Cluster::flops, or all equal.
  std::optional<ModelProfile> profile = {};
  bool equal = false;                     ///< without a profile: all parts take a millisecond
  Source costs = Source::assumed;         ///< source of the durations
  double fresh = 0;                       ///< SimulateOptions::fresh
  std::vector<Axis> mesh = {};            ///< mesh to use; empty: any
  std::vector<int> micro = {};            ///< numbers of micro-batches; empty: any
  std::vector<bool> recompute = {false};  ///< candidates for activation checkpointing, used where it saves memory
  int top = 20;                           ///< number of results
};

/// Searches for the settings' model, built without values. Bounds: layers are split over at most 64 ranks, and at most
/// a node's devices (or 8, if it has fewer); at most 128 micro-batches; a search takes some seconds.
class StrategySearch {
 public:
  /// shape: the model's input and classes. Throws Error if the model cannot be built.
  StrategySearch(const TrainerOptions&, const ModelOptions& shape, Device);
  /// Throws OptionError for more ranks than the cluster has devices, and for a profile of another model.
  SearchResult search(const StrategyQuestion&);
  /// Multiplications and additions of a step's forward and backward on that many rows, including the cost of moving
  /// operands.
  double operations(Index rows);
  bool has_running_statistics() const { return buffers_ > 0; }
  Index parameters() const { return parameters_.size(); }
  const SearchSpace& space() const { return space_; }  ///< of the last search

 private:
  std::pair<Tensor, Tensor> samples(Index rows) const;
  std::vector<LayerSplit> splits(ImaginedModels&, const StrategyQuestion&) const;
  SearchSpace space_of(ImaginedModels&, const StrategyQuestion&) const;

  TrainerOptions settings_;
  ModelOptions shape_;
  Device device_;
  Module model_;
  Parameters parameters_;
  Optimizer optimizer_;
  Index buffers_ = 0;
  SearchSpace space_;
};

/// Measures steps of the settings' model on synthetic data, whole on each rank of the communicator (measure_model()).
/// rows: MeasureOptions::rows; empty: a rank's share of data.batch, and a quarter of it. A collective call.
ModelProfile measure_whole(const TrainerOptions&, const ModelOptions& shape, Device, Communicator&, int ranks,
                           std::vector<Index> rows = {}, int runs = 5);
/// The smallest device memory of the first ranks in a cluster, in bytes; 0: unknown.
Index memory_of(const Cluster&, int ranks);
/// The settings with the strategy's mesh, text and ranks.
TrainerOptions with_strategy(TrainerOptions, const RankedStrategy&);
/// "margin 2.1 % to the next, band +-50 % (assumed: costs counted from shapes): the first 6 are alike".
std::string margin_in_words(const SearchResult&, const StrategyQuestion&);
/// One line with the reason why there is no candidate for that many ranks, and the remedy.
std::string none_in_words(const TrainerOptions&, const SearchSpace&, const StrategyQuestion&);

}  // namespace trireme
