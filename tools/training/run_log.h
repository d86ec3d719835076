// RunLog: what a run tells: lines on stderr, metrics.jsonl, metrics.csv and TensorBoard events in the run directory.
// Rank 0's does; those of other ranks do nothing.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "datasets/core/loader.h"
#include "framework/optim/parameters.h"
#include "parallel/runtime/step.h"
#include "tools/training/console.h"
#include "tools/training/evaluate.h"
#include "tools/training/mllog.h"
#include "tools/training/run_clock.h"
#include "tools/training/run_dir.h"
#include "tools/training/train_metrics.h"
#include "tools/training/trainer_options.h"

namespace trireme {

class RunLog {
 public:
  /// Options and clock must outlive it.
  RunLog(const TrainerOptions&, const World&, const RunClock&);
  /// Makes the run directory, or opens that of the run which goes on. metrics: of evaluations.
  void open_run(const Dataset& train, const std::vector<Metric>& metrics);
  void open_events(std::optional<std::int64_t> resumed);
  Console& console() { return console_; }
  EventFile* events() { return dir_ ? dir_->events() : nullptr; }  ///< null: none are written
  bool writes() const { return dir_.has_value(); }
  RunDir& dir() { return *dir_; }  ///< of a rank that writes

  void copy_to(const std::string& path) { console_.copy_to(path); }  ///< Console::copy_to
  /// Drops what was written of steps that come again: those after this place.
  void rewind(const Progress&);
  /// The run begins, or resumes. replicas: ranks that divide a batch.
  void begin(Step&, NormScope, int replicas, const DatasetSource& train, const DatasetSource& test, Index batches);
  /// The run ends. preempted: it is to be resumed. whole: all epochs are trained, or the program has ended it.
  void end(bool preempted, bool whole);
  /// The run's, on all ranks; empty on those of virtual time that do not know it. A collective call where time is real.
  std::string agreed_directory(World&) const;
  /// MlLog::write, where run.mllog asks for it.
  void ml(std::string_view kind, std::string_view key, const nlohmann::json& value, std::int64_t epoch = 0);
  /// A training step of an epoch of so many batches: progress, and every 20th step a record.
  void train_step(const EpochMetrics&, const StepMetrics&, Index batches);
  /// The end of an epoch: a line, a record, histograms of the weights.
  void epoch_end(const EpochMetrics&, const Evaluation&, const Parameters&);
  /// The first inputs of this process, as pixels, in TensorBoard; nothing of data that are no pictures.
  void show_inputs(const Batch&, const DatasetSource& train, std::int64_t step);
  /// Before a checkpoint: the directory, its settings (RunDir::keep_settings) and cluster are what they should be.
  void keep_settings(std::optional<std::int64_t> overridden);
  /// Likewise what the data are: record, and in a run that goes on with other ones their classes and tokenizer.
  void keep_data(const Dataset& train, const std::string& record, bool overridden);

 private:
  void write_labels(const Dataset& train);
  /// Of all that is left to train, at the epoch's speed; evaluations not counted: "1:02:03".
  std::string time_left(const EpochMetrics&, const StepMetrics&, Index batches) const;
  /// Makes metrics.jsonl anew where it was removed, and says so. Throws Error where the run directory is gone.
  void restore_if_removed();
  /// Adds to a line how fast the epoch went, and in virtual time when that was.
  void record(nlohmann::json line, const EpochMetrics&);
  const TrainerOptions& options_;
  const RunClock& clock_;
  Console console_;
  std::optional<RunDir> dir_;
  std::optional<MlLog> ml_;
  const char* unit_ = "images";  // what samples are, or consist of
  double units_ = 1;             // a sample
  bool main_, inputs_shown_ = false, begun_ = false;
  MlLog::Time opened_ = std::chrono::system_clock::now();  // before the Trainer opens data
  std::int64_t last_step_ = -1;                            // of train_step(); -1: none yet
};

}  // namespace trireme
