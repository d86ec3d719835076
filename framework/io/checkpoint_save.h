// The two halves of a save: collecting a rank's state, and writing the state. The writing may happen later and on
// another thread, if the tensors were copied before.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "framework/io/checkpoint_parts.h"
#include "framework/io/json.h"

namespace trireme::detail {

/// The tensors that a rank writes: one file of each kind.
using Shards = std::array<SafetensorsShard, file_kinds>;

/// The part of a checkpoint that this rank writes, and on rank 0 the list of all parts. Shares memory with the run
/// until copy().
struct CheckpointInput {
  /// By CheckpointFile: tensors of the model and of the optimizer.
  std::array<std::vector<StoredTensor>, 2> stored = {};
  /// On rank 0: all that the files of all ranks together must contain.
  std::array<std::vector<StoredTensor>, 2> expected = {};
  std::vector<NamedTensor> counters = {}, local = {};  ///< PyTorch's num_batches_tracked; state of this rank only
  Json manifest = {};                                  ///< without the files
  std::string layout = {};
  std::int64_t step = 0;
  int rank = 0, ranks = 1;
  bool divided = false;  ///< ranks write together: each tensor is the part that this rank writes

  CheckpointInput(const Parameters&, const Optimizer&, const TrainState&, const SaveOptions&);
  /// Copies the run's tensors to the host, into `space` where they fit (the tensors of the previous save: writing to
  /// existing memory takes a third of the time of new memory).
  void copy(std::vector<Tensor>& space);
  /// In the files' layout. Collective if weights are divided and ranks do not write together.
  Shards shards() const;
};

/// The second half of save_checkpoint(). gather: as for together().
std::string write_checkpoint(const std::string& run, const CheckpointInput&, const std::function<Shards()>& shards,
                             const SaveOptions&, const GatherTexts& gather);

}  // namespace trireme::detail
