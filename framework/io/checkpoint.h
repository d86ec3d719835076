// Checkpoints of a run: one directory per step with model.safetensors, optimizer.safetensors and a manifest that
// carries their sizes and CRCs. Where several ranks hold different state each writes its own: shards of these files
// (framework/io/safetensors_shards.h; PyTorch's torch.distributed.checkpoint), which ranks of any other layout can
// read. At every moment of a save, a crash leaves the previous checkpoint or the new one, whole.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "framework/io/weights.h"
#include "framework/optim/optimizer.h"

namespace trireme {

/// Where a run stands. All randomness is counter-based (Philox), so seed and position are the whole random state.
struct TrainState {
  std::int64_t step = 0;              ///< optimizer steps done
  std::int64_t epoch = 0, batch = 0;  ///< the next batch to train on: batches of this epoch already done
  /// Samples of this epoch already trained on, which names the next one whatever a batch is then. None in checkpoints
  /// that were written before there was such a count.
  std::optional<std::int64_t> samples = {};
  std::uint64_t seed = 0;
  std::string partition = {};  ///< the layers that a pipeline's stages begin at, where there is one; else empty
  std::string program = {};    ///< what a program gave its Trainer, a line each; empty: nothing
  std::string norm_rows = {};  ///< what batch norms' statistics cover, in words; empty: there are none, or nobody said
  std::string config = {};     ///< the resolved configuration, UTF-8
  std::map<std::string, double> metrics = {};
};

/// The part of one rank in a checkpoint that ranks write or read together; Step::checkpoint_shard() makes it. Slices
/// are of the flat block.
struct CheckpointShard {
  int rank = 0, ranks = 1;
  std::string layout = {};                ///< mesh and strategies: ranks of an equal one hold the same
  std::vector<Slice> holds = {};          ///< weights that are here; of the optimizer's state Optimizer::kept() says it
  std::vector<bool> holds_buffers = {};   ///< by position: whether a buffer is here
  std::vector<Slice> writes = {};         ///< weights that no rank of a lower number holds
  std::vector<bool> writes_buffers = {};  ///< buffers likewise
  std::vector<Slice> writes_state = {};   ///< optimizer state likewise
  /// Of ParameterStore::states() those that go with the weights, held and written as they are: global, so that ranks of
  /// any layout can read them. A checkpoint may lack them, or have others: then they stay as they are.
  std::vector<std::string> states = {};
  std::map<std::string, Tensor> local = {};  ///< to be saved beside SaveOptions::local, from any device
  /// Every rank's text, by rank: names, sizes and errors, never tensors. A collective call.
  std::function<std::vector<std::string>(const std::string&)> all_gather = {};
};

struct SaveOptions {
  int keep_last = 3;            ///< older checkpoints are removed, except the best; 0 keeps all
  std::int64_t keep_every = 0;  ///< those of steps that this divides are kept, too; 0: none for that
  bool best = false;            ///< this is the best so far: the file `best` names it from now on
  bool write = true;  ///< false: only take part where weights are divided (framework/tensor/shard_spec.h); returns ""
  /// All ranks save together, each what it writes; none: this rank has all.
  std::optional<CheckpointShard> shard = {};
  /// State of this rank alone (a compressor's residual), by name: only ranks of the same layout can go on with it.
  std::map<std::string, Tensor> local = {};
};

/// The name of the directory of a checkpoint behind so many optimizer steps: "step_00000123".
std::string step_directory(std::int64_t step);
/// Writes <run>/checkpoints/step_<8 digits>/ as a .tmp directory, every file and the directory fsynced, then renames
/// it; then the files `latest` and `best` are replaced; only then are old checkpoints removed. Returns the directory's
/// path. Throws Error, with what was there before intact: a value that is not finite (named), a full disk or an
/// unwritable directory (path, bytes and reason). One process saves into a run directory at a time; with a shard the
/// ranks do so together, a collective call, after which the path is returned, or Error thrown, on all of them: rank 0
/// names the run, which lies where all ranks see it, and writes the manifest once all others' files are durable.
std::string save_checkpoint(const std::string& run, const Parameters&, const Optimizer&, const TrainState&,
                            const SaveOptions& = {});

struct LoadedCheckpoint {
  TrainState state;
  std::string path;
  std::string note;  ///< not empty when a newer checkpoint was damaged: what was wrong, and what was taken instead
  std::map<std::string, Tensor> local = {};  ///< SaveOptions::local of this rank; read with the optimizer only
};
/// Removes what a killed process has left half written or half removed. For the one process that writes to the run.
void remove_unfinished(const std::string& run);
/// Whether a save of the run has ever ended: there is a checkpoint, whole or damaged.
bool has_checkpoints(const std::string& run);
/// The newest checkpoint of the run that verifies, with nothing restored; nothing when the run has none. Throws Error
/// when all are damaged. but: one that is passed over.
std::optional<LoadedCheckpoint> find_latest(const std::string& run, const std::string& but = "");
/// Restores parameters, buffers and (unless null) the optimizer from the newest checkpoint of the run that verifies, or
/// returns nothing when the run has none. Throws Error, with nothing changed: all are damaged; names, shapes or the
/// optimizer differ (listed).
std::optional<LoadedCheckpoint> load_latest(const std::string& run, Parameters&, Optimizer*);
/// Same, from one checkpoint directory; damage is an Error. With a shard this rank restores what it holds, whatever
/// ranks wrote it, and reads no more than that (to whole rows of tensors); a collective call, whose errors all ranks
/// throw. Throws Error for rank-local state that ranks of another layout wrote.
LoadedCheckpoint load_checkpoint(const std::string& directory, Parameters&, Optimizer*,
                                 const std::optional<CheckpointShard>& shard = {});
/// SaveOptions::local of this rank alone. Throws Error for a checkpoint that ranks of another layout wrote, or that is
/// damaged.
std::map<std::string, Tensor> read_local_state(const std::string& directory, const CheckpointShard&);
/// Reads the manifest and verifies it and the sizes and CRCs of the files. Throws Error saying what is damaged.
TrainState verify_checkpoint(const std::string& directory);

}  // namespace trireme
