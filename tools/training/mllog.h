// MlLog: writes MLPerf's log lines (mlperf_logging, mllog), ":::MLLOG {...}", for its compliance checker and plots.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "tools/training/trainer_options.h"

namespace trireme {

/// A log file of MLPerf lines.
class MlLog {
 public:
  using Time = std::chrono::system_clock::time_point;
  /// Appends to the file. Throws Error if it cannot be opened.
  explicit MlLog(const std::string& path);
  /// Removes from an existing file the lines that a run resumed after that many whole epochs writes again: lines of
  /// later epochs and the end of the run. Throws Error if it cannot be written.
  static void rewind(const std::string& path, std::int64_t epochs);
  /// Whether the file was empty; a resumed run has its first lines already.
  bool is_new() const { return new_; }
  /// kind: "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END". metadata: in addition to file and lineno.
  void write(std::string_view kind, std::string_view key, const nlohmann::json& value, nlohmann::json metadata,
             Time = std::chrono::system_clock::now());

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  bool new_ = true;
};

/// Data of a run's first lines that are not in its options.
struct MlRun {
  std::int64_t train_samples = 0, test_samples = 0, steps_per_epoch = 0, parameters = 0;
  int microbatches = 1;   ///< micro-batches per step on each replica
  std::int64_t span = 0;  ///< samples in a batch norm's statistics
};
/// Writes the keys up to the start of the run that mlperf_logging's training rules require for every benchmark, and for
/// ResNet's optimizers. All have one time, before any data was opened.
void write_begin(MlLog&, const TrainerOptions&, const MlRun&, MlLog::Time);

}  // namespace trireme
