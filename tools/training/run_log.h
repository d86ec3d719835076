// RunLog: all output of a run: lines on stderr, metrics.jsonl, metrics.csv and TensorBoard events in the run directory.
// Only rank 0 writes; on other ranks it does nothing.
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
  /// Creates the run directory, or opens the resumed run's. metrics: of evaluations.
  void open_run(const Dataset& train, const std::vector<Metric>& metrics, bool validates);
  void open_events(std::optional<std::int64_t> resumed);
  Console& console() { return console_; }
  EventFile* events() { return dir_ ? dir_->events() : nullptr; }  ///< the event file; null: none
  bool writes() const { return dir_.has_value(); }
  RunDir& dir() { return *dir_; }  ///< the run directory; only if writes()

  void copy_to(const std::string& path) { console_.copy_to(path); }  ///< Console::copy_to
  /// Removes the output of steps after this position, which will be trained again.
  void rewind(const Progress&);
  /// Call when the run starts or resumes. replicas: number of ranks that divide a batch.
  void begin(Step&, NormScope, int replicas, const DatasetSource& train, const DatasetSource& test, Index batches);
  /// Call when the run ends. preempted: it will be resumed. whole: all epochs are done, or the program ended the run.
  void end(bool preempted, bool whole);
  /// The run directory's path on all ranks; in virtual time empty on ranks that do not know it. A collective call in
  /// real time.
  std::string agreed_directory(World&) const;
  /// MlLog::write, if run.mllog is set.
  void ml(std::string_view kind, std::string_view key, const nlohmann::json& value, std::int64_t epoch = 0);
  /// Logs a training step; batches: per epoch. Prints progress, and writes a record every 20 steps.
  void train_step(const EpochMetrics&, const StepMetrics&, Index batches);
  /// Whether epoch_end() writes histograms of all weights; the same on all ranks.
  bool wants_weights(std::int64_t epoch) const;
  /// Logs the end of an epoch: a line, a record, histograms of the weights.
  void epoch_end(const EpochMetrics&, const Evaluation&, const Parameters&);
  /// The evaluation on the test set at the end of a run that has validation data.
  void test_end(const Progress&, const Evaluation&);
  /// Writes the first inputs of this process as pictures to TensorBoard; nothing for data other than pictures.
  void show_inputs(const Batch&, const DatasetSource& train, std::int64_t step);
  /// Call before a checkpoint: updates the settings (RunDir::keep_settings) and the cluster in the run directory.
  void keep_settings(std::optional<std::int64_t> overridden);
  /// Likewise for the data: the record and, if a resumed run has changed data, classes and tokenizer.
  void keep_data(const Dataset& train, const std::string& record, bool overridden);

 private:
  void write_labels(const Dataset& train);
  /// Expected time to the end of the run at the epoch's speed, without evaluations: "1:02:03".
  std::string time_left(const EpochMetrics&, const StepMetrics&, Index batches) const;
  /// Creates metrics.jsonl again if it was removed, and logs that. Throws Error if the run directory is gone.
  void restore_if_removed();
  /// Adds the epoch's speed, and in virtual time the time, to a line and records it.
  void record(nlohmann::json line, const EpochMetrics&);
  /// Adds an evaluation's numbers. split: "test_" or "val_".
  static void add(nlohmann::json& line, const Evaluation&, const std::string& split);
  const TrainerOptions& options_;
  const RunClock& clock_;
  Console console_;
  std::optional<RunDir> dir_;
  std::optional<MlLog> ml_;
  const char* unit_ = "images";  // what a sample is, or consists of
  double units_ = 1;             // units per sample
  bool main_, inputs_shown_ = false, begun_ = false, validates_ = false;
  MlLog::Time opened_ = std::chrono::system_clock::now();  // before the Trainer opens data
  std::int64_t last_step_ = -1;                            // of train_step(); -1: none yet
};

}  // namespace trireme
