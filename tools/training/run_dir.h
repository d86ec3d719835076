// RunDir: the files of one run: config.toml (all settings), metrics.jsonl (a JSON object per record), metrics.csv (the
// same records, a row each), classes.txt, algorithms.txt, TensorBoard's event files, result.json, and the folder
// checkpoints/. Only rank 0 has a RunDir.
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

/// File of class names, one per line, if the data set has names.
inline constexpr const char* class_file = "classes.txt";
/// File of the tokenizer of a run on text (datasets/text/tokenizer.h).
inline constexpr const char* tokenizer_file = "tokenizer.json";
/// File of the measured all-reduce algorithms (parallel.allreduce = "auto").
inline constexpr const char* algorithms_file = "algorithms.txt";

/// File of the result of a finished run (RunDir::write_result).
inline constexpr const char* result_file = "result.json";
/// File of the simulated machines of a run in virtual time.
inline constexpr const char* cluster_file = "cluster.toml";

class RunDir {
  struct Column {
    std::string key, tag;  // key of metrics.jsonl; tag of the TensorBoard curve, or none
  };

 public:
  /// Creates path (or, if empty, the first free of runs/NAME, runs/NAME-2, ...), locks it and writes config.toml. With
  /// resume the directory must exist, the caller must hold its RunLock, and config.toml does not change until
  /// keep_settings(). Throws Error with path and reason if the directory cannot be written, has checkpoints, or is
  /// locked by another process. simulated: metrics.csv has columns of virtual time. keys: further keys of records
  /// ("test_f1", "tokens_per_s"), which become columns and curves ("test/f1", "throughput/tokens_per_s"). best:
  /// checkpoint.best.
  RunDir(const std::string& path, const std::string& name, const std::string& config, bool resume,
         bool simulated = false, std::vector<std::string> keys = {}, std::string best = "");
  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string table() const { return path_ + "/metrics.csv"; }
  /// If metrics.jsonl was removed, creates it and config.toml again and returns true; earlier records are lost. Throws
  /// Error (file) if the directory was removed or replaced.
  bool restore_if_removed(const std::string& config);
  /// Appends one line to metrics.jsonl and one row to metrics.csv, and writes numbers with a tag to the events. Every
  /// key must be a column of the table in run_dir.cpp. Throws Error if a file cannot be written.
  void record(const nlohmann::json& line);
  /// Replaces config.toml by the current settings, unless equal. overridden: the step from which settings that affect
  /// the training differ; the old file is then kept as config.until_STEP.toml.
  void keep_settings(const std::string& config, std::optional<std::int64_t> overridden);
  /// Writes class_file, unless names is empty.
  void write_classes(const std::vector<std::string>& names);
  /// Writes data_file (tools/training/data_record.h), unless it is equal.
  void keep_data(const std::string& record);
  /// Writes algorithms_file, unless it is equal or the table is empty.
  void keep_algorithms(const std::string& table);
  /// Removes the records of steps after `step`, which will be written again, and an incomplete last line.
  void rewind(std::int64_t step);
  /// Writes environment.json: machine and software of the run.
  void write_environment(const nlohmann::json&);
  /// Writes prediction.json: predicted and actual duration of a step.
  void write_prediction(const nlohmann::json&);
  /// Writes cluster_file, unless it is equal.
  void keep_cluster(const std::string& toml);
  /// Removes result.json, when a run is resumed.
  void remove_result();
  /// Writes result.json at the end of a run: {"status": status, "step": steps done, "epoch":
  /// whole epochs, "best": {"epoch": n, "step": n, "test_top1": %}}, "best" is the first of the best evaluations by the
  /// key of checkpoint.best, if there was one.
  void write_result(const std::string& status, std::int64_t step, std::int64_t epoch);
  /// The newest valid checkpoint except `other`; empty: none.
  std::string checkpoint_before(const std::string& other) const;
  /// Number of optimizer steps before the first of the best evaluations; -1: no evaluation.
  std::int64_t best_step() const;
  /// Whether the directory had metrics of a run that ended before its first checkpoint; that run starts again.
  bool was_used() const { return was_used_; }
  /// From now on record() writes TensorBoard's events too; resumed, simulated: see EventFile.
  void open_events(std::optional<std::int64_t> resumed, EventFile::Seconds simulated = {}) {
    events_.emplace(path_, resumed, std::move(simulated));
  }
  /// The event file; null unless open.
  EventFile* events() { return events_ ? &*events_ : nullptr; }

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  void open();
  nlohmann::json best() const;  // as in result.json; null: no evaluation
  std::string csv_head() const;
  std::string csv_row(const nlohmann::json& line) const;
  /// The key by which evaluations are compared, and whether lower is better.
  std::pair<std::string, bool> compared_by(const nlohmann::json& evaluation) const;
  std::vector<Column> columns_;  // of this run
  std::string path_, best_;
  bool simulated_, was_used_ = false;
  std::pair<std::uint64_t, std::uint64_t> identity_ = {};  // device and inode number of the directory
  std::optional<RunLock> lock_;                            // of a new run
  File lines_, rows_;
  std::optional<EventFile> events_;
  std::map<std::string, std::int64_t> shown_;  // by tag: the last step in the events
};

}  // namespace trireme
