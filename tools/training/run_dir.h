// RunDir: the files of one run: config.toml (all settings), metrics.jsonl (a JSON object per record), metrics.csv (the
// same records, a row each), classes.txt, algorithms.txt, TensorBoard's event files, result.json; beside them lies
// checkpoints/.
// Only rank 0 has one.
#pragma once
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/training/events.h"
#include "tools/training/run_lock.h"

namespace trireme {

/// Names of the classes in a run directory, one per line, where the data set has names.
inline constexpr const char* class_file = "classes.txt";
/// The tokenizer of a run on text, in its directory (datasets/text/tokenizer.h).
inline constexpr const char* tokenizer_file = "tokenizer.json";
/// The all-reduce algorithms that were measured for a run (parallel.allreduce auto).
inline constexpr const char* algorithms_file = "algorithms.txt";

/// How a run ended (RunDir::write_result).
inline constexpr const char* result_file = "result.json";
/// The simulated machines of a run in virtual time, in its directory.
inline constexpr const char* cluster_file = "cluster.toml";

class RunDir {
  struct Column {
    std::string key, tag;  // of metrics.jsonl, of TensorBoard's curves; no tag: none
  };

 public:
  /// Creates path (or, if empty, the first free of runs/NAME, runs/NAME-2, ...), locks it and writes config.toml. With
  /// resume the directory must exist, the caller has a RunLock of it, and its config.toml stays until keep_settings().
  /// Throws Error with path and reason when it cannot be written, holds checkpoints, or is being written by another
  /// process. simulated: metrics.csv has columns of virtual time. keys: more of records ("test_f1", "tokens_per_s"),
  /// which are columns and curves ("test/f1", "throughput/tokens_per_s"), too. best: checkpoint.best.
  RunDir(const std::string& path, const std::string& name, const std::string& config, bool resume,
         bool simulated = false, std::vector<std::string> keys = {}, std::string best = "");
  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string table() const { return path_ + "/metrics.csv"; }
  /// Where metrics.jsonl is not the file any more that is being written (somebody removed it), makes it and config.toml
  /// anew and returns true: what was there before is lost. Throws Error (file) where the directory is gone, or another
  /// one has its name.
  bool restore_if_removed(const std::string& config);
  /// Appends one line to metrics.jsonl and one row to metrics.csv, and the numbers that have a tag to the events. Every
  /// key is a column of the table in run_dir.cpp. Throws Error when it cannot be written.
  void record(const nlohmann::json& line);
  /// Replaces config.toml by the settings that the run has from now on, unless they are the same. overridden: the step
  /// since which they differ in what matters; those before it are then kept as config.until_STEP.toml.
  void keep_settings(const std::string& config, std::optional<std::int64_t> overridden);
  /// Writes class_file; nothing for no names.
  void write_classes(const std::vector<std::string>& names);
  /// Writes data_file (tools/training/data_record.h), unless it says the same.
  void keep_data(const std::string& record);
  /// Writes algorithms_file, unless it says the same; nothing for an empty table.
  void keep_algorithms(const std::string& table);
  /// Drops the lines of steps after `step` (they will be written again), and a last line cut short.
  void rewind(std::int64_t step);
  /// Writes environment.json: on what the run trains.
  void write_environment(const nlohmann::json&);
  /// Writes prediction.json: what a step was to take beside what it took.
  void write_prediction(const nlohmann::json&);
  /// Replaces cluster_file, unless it holds this text.
  void keep_cluster(const std::string& toml);
  /// Removes result.json: the run goes on.
  void remove_result();
  /// Writes result.json, which is not there while the run goes on: {"status": status, "step": steps done, "epoch":
  /// whole epochs, "best": {"epoch": n, "step": n, "test_top1": %}}, the first of the best evaluations, if there was
  /// any, by the key of checkpoint.best.
  void write_result(const std::string& status, std::int64_t step, std::int64_t epoch);
  /// The newest checkpoint that verifies; the one before it where the newest is `other`; empty: there is none.
  std::string checkpoint_before(const std::string& other) const;
  /// Optimizer steps behind which the first of the best evaluations was; -1: there was none.
  std::int64_t best_step() const;
  /// Whether it held the metrics of a run that ended before its first checkpoint, which is begun again.
  bool was_used() const { return was_used_; }
  /// From now on record() writes TensorBoard's events too; resumed, simulated: see EventFile.
  void open_events(std::optional<std::int64_t> resumed, EventFile::Seconds simulated = {}) {
    events_.emplace(path_, resumed, std::move(simulated));
  }
  /// Null unless open.
  EventFile* events() { return events_ ? &*events_ : nullptr; }

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  void open();
  nlohmann::json best() const;  // as in result.json; null: there was no evaluation
  std::string csv_head() const;
  std::string csv_row(const nlohmann::json& line) const;
  /// By which key evaluations are compared, and whether the lower is better.
  std::pair<std::string, bool> compared_by(const nlohmann::json& evaluation) const;
  std::vector<Column> columns_;  // of this run
  std::string path_, best_;
  bool simulated_, was_used_ = false;
  std::pair<std::uint64_t, std::uint64_t> identity_ = {};  // of the directory: its device and file number
  std::optional<RunLock> lock_;                            // of a new run
  File lines_, rows_;
  std::optional<EventFile> events_;
  std::map<std::string, std::int64_t> shown_;  // by tag: the last step in the events
};

}  // namespace trireme
