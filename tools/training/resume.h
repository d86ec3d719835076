// Resume: a run continues from the newest checkpoint in its directory. Settings that would change the training are
// refused by name, or taken and logged with run.override.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/io/checkpoint.h"
#include "parallel/comm/cluster.h"
#include "parallel/runtime/step.h"
#include "tools/training/run_lock.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// Where a run stands, and the sums of its epoch so far; equal on all ranks.
struct Progress {
  std::int64_t step = 0, epoch = 0;      ///< optimizer steps and whole epochs done
  std::int64_t batch = 0, samples = 0;   ///< of this epoch, done
  std::int64_t correct = 0, labels = 0;  ///< right predictions, and how many there are, of `counted` samples
  std::int64_t counted = 0;              ///< samples of this epoch that the sums are of
  double loss = 0;                       ///< summed over them
  bool ended = false;                    ///< TrainerCallbacks::on_evaluation has ended the run
  double loss_scale = 0;                 ///< of f16 (LossScaleState); 0: there is none
  std::int64_t good_steps = 0;

  bool in_epoch() const { return samples > 0; }
  void next_epoch() { *this = {.step = step, .epoch = epoch + 1, .loss_scale = loss_scale, .good_steps = good_steps}; }
};
/// To and from a checkpoint: sums of the epoch and the loss scale are metrics named "epoch_..." and "loss_scale...".
void store(const Progress&, TrainState&);
Progress progress_of(const TrainState&);

/// The place that a run continues from, found by rank 0.
struct ResumePoint {
  std::string path;
  std::vector<std::string> notes;  ///< LoadedCheckpoint's, and that config.toml was missing
  Progress progress;
  std::string partition;             ///< as in TrainState; empty when the ranks stand in another way now
  std::string norm_rows, program;    ///< as in TrainState
  std::vector<std::string> changes;  ///< that run.override lets pass, one sentence each
  bool reordered = false;            ///< they give the rest of an epoch other samples, or another order
};
/// Whether run.resume says that a run goes on: yes; or auto, where options.run.dir has a checkpoint.
bool goes_on(const TrainerOptions&);
/// The newest checkpoint of options.run.dir. Throws Error for one without checkpoints, and without run.override for
/// settings that change the training: all of them by name, with both values.
ResumePoint find_resume_point(const TrainerOptions&);
/// Throws Error for settings by which the recorded run, of this state, came together at other steps, or had other
/// batches: what comes in the recorded order would be something else.
void check_replayed(const TrainerOptions&, const TrainState&);
/// The cluster_file that a run which goes on keeps; empty: there is none, or no run goes on.
std::string kept_cluster(const TrainerOptions&);
/// For a run in virtual time: adds to the changes that these machines are others than in the run (cluster_file). Throws
/// Error without run.override.
void check_cluster(ResumePoint&, const TrainerOptions&, const Cluster&);
/// The checkpoint with the order of arrivals of the run that run.replay names: a path itself, or the newest of a run
/// directory. Throws Error where there is none, and as check_replayed().
std::string replayed_checkpoint(const TrainerOptions&);
/// Compares what all ranks must have alike; then finds rank 0's place to go on from, if the run goes on: run.resume is
/// yes or no from then on, and rank 0 holds the lock of the run's directory. A collective call.
std::optional<ResumePoint> agree_on_resume(TrainerOptions&, World&, std::optional<RunLock>&);
/// Rank 0's, for all: path, partition, norm_rows, program and progress. A collective call.
void broadcast(ResumePoint&, World&);
/// TrainState::norm_rows of a step under the strategy: alike where batch norms see the same rows, whoever has them.
std::string norm_rows(const Step&, const Strategy&);
/// How the data differ from the run's: in a class, or from data_file, by data_record() of rank 0. A collective call.
std::vector<std::string> changed_data(const TrainerOptions&, const std::string& record, const DatasetSource& train,
                                      World&);
/// Adds to the changes that the batch norms see other rows now than in the run (norm_rows), that the program gave its
/// Trainer something else (TrainState::program; metrics may change), and what has changed in the data. Returns what to
/// tell: notes, changes, and sums that are missing. Throws Error for any of them without run.override.
std::vector<std::string> resume_notes(const TrainerOptions&, ResumePoint&, const std::string& norm_rows,
                                      const std::string& program, const std::vector<std::string>& data);
/// Loads the checkpoint into the step's model and optimizer, on all ranks. Returns this rank's own state. A collective
/// call.
std::map<std::string, Tensor> restore(Step&, const ResumePoint&);
/// The text that config.toml and checkpoints keep: without run.resume and run.override.
std::string kept_settings(TrainerOptions);

}  // namespace trireme
