// StrategySearch: search() (parallel/search/search.h) for the model, batch and strategy settings of a run, on ranks of
// a described cluster; and what it found as settings of that run.
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

/// What is asked.
struct StrategyQuestion {
  int ranks = 1;
  Cluster cluster = {};  ///< with a device for each rank
  Index memory = 0;      ///< bytes that a rank may hold; 0: any number
  /// What the model's parts take; none: they are counted from shapes, for Cluster::flops, or all alike.
  std::optional<ModelProfile> profile = {};
  bool equal = false;                     ///< without a profile: all parts take a millisecond
  Source costs = Source::assumed;         ///< of these numbers
  double fresh = 0;                       ///< SimulateOptions::fresh
  std::vector<Axis> mesh = {};            ///< to keep; empty: any
  std::vector<int> micro = {};            ///< numbers of micro-batches; empty: any
  std::vector<bool> recompute = {false};  ///< whether layers run again in backward; true where that keeps less
  int top = 20;
};

/// The settings' model, without values, and its searches: of layers that are split over at most 64 ranks, and no more
/// than a node has (8, where it has fewer), of at most 128 micro-batches, and of as much as takes some seconds.
class StrategySearch {
 public:
  /// shape: the model's input and classes. Throws Error where the model cannot be made.
  StrategySearch(const TrainerOptions&, const ModelOptions& shape, Device);
  /// Throws OptionError for more ranks than the cluster has devices, and for a profile of another model.
  SearchResult search(const StrategyQuestion&);
  /// Multiplications and additions of a step's forward and backward on so many rows, with what moving operands takes.
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

/// Steps of the settings' model, whole on each rank of the communicator, all at the same time: of as many rows as each
/// of so many ranks has of data.batch, and of a quarter of these. A collective call.
ModelProfile measure_whole(const TrainerOptions&, const ModelOptions& shape, Device, Communicator&, int ranks);
/// The smallest memory that a cluster file tells of the devices of the first ranks, bytes; 0: it tells none.
Index memory_of(const Cluster&, int ranks);
/// The settings with the strategy's mesh, text and ranks.
TrainerOptions with_strategy(TrainerOptions, const RankedStrategy&);
/// "margin 2.1 % to the next, band +-50 % (assumed: costs counted from shapes): the first 6 are alike".
std::string margin_in_words(const SearchResult&, const StrategyQuestion&);
/// Why there is no candidate at all, for so many ranks: one line, with the remedy.
std::string none_in_words(const TrainerOptions&, const SearchSpace&, const StrategyQuestion&);

}  // namespace trireme
