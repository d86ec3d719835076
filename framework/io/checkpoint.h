// Checkpoints of a run: one directory per step with model.safetensors, optimizer.safetensors and a manifest with their
// sizes and CRCs. If ranks have different state, each writes its own shards of these files
// (framework/io/safetensors_shards.h; compare torch.distributed.checkpoint). Ranks of any other layout can read them. A
// crash at any moment of a save leaves the previous checkpoint or the new one, complete.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "framework/io/weights.h"
#include "framework/optim/optimizer.h"

namespace trireme {

/// The position of a run. All randomness is counter-based (Philox), so seed and position are the whole random state.
struct TrainState {
  std::int64_t step = 0;   ///< number of optimizer steps done
  std::int64_t epoch = 0,  ///< current epoch, from 0
      batch = 0;           ///< number of batches of this epoch done: the next batch to train on
  /// Number of samples of this epoch done: determines the next sample even if the batch size changes. Empty in old
  /// checkpoints, written before this number was stored.
  std::optional<std::int64_t> samples = {};
  std::uint64_t seed = 0;      ///< seed of the run
  std::string partition = {};  ///< first layers of the pipeline's stages; empty: no pipeline
  std::string program = {};    ///< custom data sets, optimizer, sampler and metrics, one per line; empty: none
  std::string norm_rows = {};  ///< scope of batch norm's statistics, in words; empty: no batch norm, or unknown
  std::string config = {};     ///< the resolved configuration, UTF-8
  std::map<std::string, double> metrics = {};  ///< values by name, for example "val_loss"
};

/// One rank's part of a checkpoint that ranks write or read together. Step::checkpoint_shard() creates it. Slices are
/// of the flat block.
struct CheckpointShard {
  int rank = 0,                   ///< index of this rank
      ranks = 1;                  ///< number of ranks
  std::string layout = {};        ///< mesh and strategies: in runs of equal layout, ranks have the same parts
  std::vector<Slice> holds = {};  ///< weights that this rank has (for the optimizer's state see Optimizer::kept())
  std::vector<bool> holds_buffers = {};   ///< per buffer: whether this rank has it
  std::vector<Slice> writes = {};         ///< weights that this rank writes: no lower rank has them
  std::vector<bool> writes_buffers = {};  ///< per buffer: whether this rank writes it
  std::vector<Slice> writes_state = {};   ///< optimizer state that this rank writes
  /// Names of ParameterStore::states() that belong to the weights, and are held and written in the same slices: ranks
  /// of any layout can read them. States that a checkpoint lacks stay unchanged, and unknown ones are ignored.
  std::vector<std::string> states = {};
  std::map<std::string, Tensor> local = {};  ///< saved in addition to SaveOptions::local, from any device
  /// Gathers a text of every rank, in the order of ranks: names, sizes and errors, never tensors. Collective.
  std::function<std::vector<std::string>(const std::string&)> all_gather = {};
};

/// Options of save_checkpoint().
struct SaveOptions {
  int keep_last = 3;            ///< number of newest checkpoints to keep (and the best one); 0: all
  std::int64_t keep_every = 0;  ///< also keeps checkpoints of steps that are multiples of this; 0: none
  bool best = false;            ///< this checkpoint is the best so far: the file `best` names it from now on
  bool write = true;            ///< false: only take part in collective calls for divided weights
                                ///< (framework/tensor/shard_spec.h); returns ""
  /// Set if all ranks save together, each its own part; none: this rank has everything.
  std::optional<CheckpointShard> shard = {};
  /// State of this rank only (a compressor's residual), by name. Only ranks of the same layout can resume with it.
  std::map<std::string, Tensor> local = {};
};

/// Name of a checkpoint's directory after `step` optimizer steps: "step_00000123".
std::string step_directory(std::int64_t step);
/// Writes the directory checkpoints/step_00000123 (step in 8 digits) of the run and returns its path. It writes a .tmp
/// directory, fsyncs every file and the directory, and renames it. Then it replaces the files `latest` and `best`, and
/// at last removes old checkpoints. Throws Error, with earlier checkpoints intact, for a value that is not finite (the
/// message names it), a full disk or an unwritable directory (path, bytes and reason). Only one process may save to a
/// run directory at a time. With a shard, the ranks save together: a collective call, after which all ranks return the
/// path or throw Error. The path of rank 0 counts, and all ranks must see that directory. Rank 0 writes the manifest
/// after the files of all other ranks are durable.
std::string save_checkpoint(const std::string& run, const Parameters&, const Optimizer&, const TrainState&,
                            const SaveOptions& = {});

/// Result of loading a checkpoint.
struct LoadedCheckpoint {
  TrainState state;  ///< position of the run
  std::string path;  ///< directory of the checkpoint
  std::string note;  ///< not empty if a newer checkpoint was damaged: the damage, and which one was loaded instead
  std::map<std::string, Tensor> local = {};  ///< SaveOptions::local of this rank; read only with the optimizer
};
/// Removes files that a killed process left partly written or partly removed. Only for the one process that writes to
/// the run.
void remove_unfinished(const std::string& run);
/// Whether the run has a checkpoint, complete or damaged.
bool has_checkpoints(const std::string& run);
/// The newest undamaged checkpoint of the run, without restoring anything; empty if the run has none. Throws Error if
/// all are damaged. but: directory of a checkpoint to skip.
std::optional<LoadedCheckpoint> find_latest(const std::string& run, const std::string& but = "");
/// Restores parameters, buffers and (unless null) the optimizer from the newest undamaged checkpoint of the run.
/// Returns nothing if the run has none. Throws Error, with nothing changed, if all are damaged, or if names, shapes or
/// the optimizer differ (listed).
std::optional<LoadedCheckpoint> load_latest(const std::string& run, Parameters&, Optimizer*);
/// As above, from one checkpoint directory; throws Error if it is damaged. With a shard this rank restores and reads
/// only its part (in whole rows of tensors). Any ranks may have written the checkpoint. The call is then collective,
/// and all ranks throw the same errors. Throws Error for rank-local state of ranks of another layout.
LoadedCheckpoint load_checkpoint(const std::string& directory, Parameters&, Optimizer*,
                                 const std::optional<CheckpointShard>& shard = {});
/// import_but_head() (framework/io/weights.h) on several ranks, each of which reads only the parts that it holds (in
/// whole rows of tensors). path: a safetensors file or an index (.json), which all ranks must see. A collective call;
/// all ranks throw the same errors.
std::vector<std::string> import_but_head(const std::string& path, Parameters&, const CheckpointShard&);
/// SaveOptions::local of this rank. Throws Error for a checkpoint of ranks of another layout, or a damaged one.
std::map<std::string, Tensor> read_local_state(const std::string& directory, const CheckpointShard&);
/// Reads the manifest, and checks it and the sizes and CRCs of all files. Throws Error naming the damage.
TrainState verify_checkpoint(const std::string& directory);

}  // namespace trireme
