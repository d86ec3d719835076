// Resume: continues a run from the newest checkpoint in its directory. Changed settings that affect the training are an
// Error that names them; with run.override they are accepted and logged.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "datasets/core/dataset.h"
#include "framework/io/checkpoint.h"
#include "parallel/comm/cluster.h"
#include "parallel/runtime/step.h"
#include "tools/training/run_lock.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// The position of a run, and the sums of its epoch so far; equal on all ranks.
struct Progress {
  std::int64_t step = 0, epoch = 0;              ///< optimizer steps done; whole epochs done
  std::int64_t batch = 0, samples = 0;           ///< batches and samples of this epoch that are done
  std::int64_t correct = 0, labels = 0;          ///< correct predictions, and labels, of `counted` samples
  std::int64_t counted = 0;                      ///< samples of this epoch in the sums
  double loss = 0;                               ///< sum over these samples
  bool ended = false;                            ///< whether TrainerCallbacks::on_evaluation ended the run
  double loss_scale = 0;                         ///< for f16 (LossScaleState::scale); 0: none
  std::int64_t good_steps = 0;                   ///< LossScaleState::good_steps
  bool in_epoch() const { return samples > 0; }  ///< whether an epoch is incomplete
  /// Moves to the start of the next epoch.
  void next_epoch() { *this = {.step = step, .epoch = epoch + 1, .loss_scale = loss_scale, .good_steps = good_steps}; }
};
/// Stores progress in a checkpoint's state: sums of the epoch and the loss scale are metrics "epoch_..." and
/// "loss_scale...".
void store(const Progress&, TrainState&);
/// The progress that store() stored.
Progress progress_of(const TrainState&);

/// The checkpoint from which a run continues; rank 0 finds it.
struct ResumePoint {
  std::string path;                  ///< the checkpoint's directory
  std::vector<std::string> notes;    ///< notes of LoadedCheckpoint, and a note if config.toml was missing
  Progress progress;                 ///< position of the checkpoint
  std::string partition;             ///< as in TrainState; empty if the layout of ranks has changed
  std::string norm_rows, program;    ///< as in TrainState
  std::vector<std::string> changes;  ///< changes that run.override accepts, one sentence each
  bool reordered = false;  ///< whether the changes alter the samples, or their order, in the rest of the epoch
};
/// Whether the run resumes: run.resume is yes, or auto and options.run.dir has a checkpoint.
bool goes_on(const TrainerOptions&);
/// Finds the newest checkpoint of options.run.dir. Throws Error if there is none, and without run.override for changed
/// settings that affect the training, with all their names and both values.
ResumePoint find_resume_point(const TrainerOptions&);
/// Throws Error if settings differ from the recorded run's in batches or in the steps at which ranks synchronise: the
/// recorded order of messages would then not apply.
void check_replayed(const TrainerOptions&, const TrainState&);
/// The contents of the resumed run's cluster_file; empty: none, or a new run.
std::string kept_cluster(const TrainerOptions&);
/// For a run in virtual time: adds a change if the cluster differs from the run's cluster_file. Throws Error without
/// run.override.
void check_cluster(ResumePoint&, const TrainerOptions&, const Cluster&);
/// The checkpoint with the order of arrivals of the run that run.replay names: the path itself, or the newest in a run
/// directory. Throws Error if there is none, and as check_replayed().
std::string replayed_checkpoint(const TrainerOptions&);
/// Compares the settings that must be equal on all ranks. Then, for a resumed run, rank 0 finds the checkpoint and
/// locks the run's directory. run.resume becomes yes or no. A collective call.
std::optional<ResumePoint> agree_on_resume(TrainerOptions&, World&, std::optional<RunLock>&);
/// Copies rank 0's path, partition, norm_rows, program and progress to all ranks. A collective call.
void broadcast(ResumePoint&, World&);
/// TrainState::norm_rows of a step under the strategy: equal if batch norms see the same rows, on whatever ranks.
std::string norm_rows(Step&, const Strategy&);
/// Differences of the data from the run's: in a class, or between rank 0's data_record() and data_file. A collective
/// call.
std::vector<std::string> changed_data(const TrainerOptions&, const std::string& record, const DatasetSource& train,
                                      World&);
/// Adds changes of the rows of batch norms (norm_rows), of the program's custom input (TrainState::program, except
/// metrics), and of the data. Returns the notes to print: notes, changes and missing sums. Throws Error for any change
/// without run.override.
std::vector<std::string> resume_notes(const TrainerOptions&, ResumePoint&, const std::string& norm_rows,
                                      const std::string& program, const std::vector<std::string>& data);
/// Loads the checkpoint into the step's model and optimizer on all ranks. Returns this rank's local state. A collective
/// call.
std::map<std::string, Tensor> restore(Step&, const ResumePoint&);
/// The settings as stored in config.toml and checkpoints: without run.resume and run.override.
std::string kept_settings(TrainerOptions);

}  // namespace trireme
