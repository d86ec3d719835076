// The two halves of a save: what a rank holds at this moment, and writing it, which may come later and on another
// thread where it was copied in between.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "framework/io/checkpoint_parts.h"
#include "framework/io/json.h"

namespace trireme::detail {

/// What a rank writes, a file of each kind.
using Shards = std::array<SafetensorsShard, file_kinds>;

/// What this rank writes of a checkpoint, and what rank 0 must know beyond that. Shares memory with the run until
/// copy().
struct CheckpointInput {
  std::array<std::vector<StoredTensor>, 2> stored = {};    ///< by CheckpointFile: of the model, of the optimizer
  std::array<std::vector<StoredTensor>, 2> expected = {};  ///< of rank 0: what all ranks' files together must have
  std::vector<NamedTensor> counters = {}, local = {};      ///< PyTorch's num_batches_tracked; state of this rank alone
  Json manifest = {};                                      ///< but for the files
  std::string layout = {};
  std::int64_t step = 0;
  int rank = 0, ranks = 1;
  bool divided = false;  ///< ranks write together: each tensor is what this rank writes of it

  CheckpointInput(const Parameters&, const Optimizer&, const TrainState&, const SaveOptions&);
  /// Copies all that is the run's to the host, into these tensors where they fit (those of the save before: memory that
  /// is there already takes a third of the time of new memory).
  void copy(std::vector<Tensor>& space);
  /// In files' layouts. A collective call where weights are divided and ranks do not write together.
  Shards shards() const;
};

/// save_checkpoint() from there on. gather: as together() takes it.
std::string write_checkpoint(const std::string& run, const CheckpointInput&, const std::function<Shards()>& shards,
                             const SaveOptions&, const GatherTexts& gather);

}  // namespace trireme::detail
