// MLPerf's log lines (mlperf_logging, mllog): ":::MLLOG {...}", of which its compliance checker and its plots are made.
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

class MlLog {
 public:
  using Time = std::chrono::system_clock::time_point;
  /// Appends to the file. Throws Error where it cannot be opened.
  explicit MlLog(const std::string& path);
  /// Drops from the file, if there is one, what a run that goes on behind so many whole epochs will write again: the
  /// lines of later epochs, and the end of the run. Throws Error where it cannot be written.
  static void rewind(const std::string& path, std::int64_t epochs);
  /// Whether nothing stood in the file: a run that goes on has its first lines already.
  bool is_new() const { return new_; }
  /// kind: "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END". metadata: beside file and lineno.
  void write(std::string_view kind, std::string_view key, const nlohmann::json& value, nlohmann::json metadata,
             Time = std::chrono::system_clock::now());

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  bool new_ = true;
};

/// What the first lines of a run say beside its options.
struct MlRun {
  std::int64_t train_samples = 0, test_samples = 0, steps_per_epoch = 0, parameters = 0;
  int microbatches = 1;   ///< of a step, on each replica
  std::int64_t span = 0;  ///< samples that a batch norm's statistics are of
};
/// The keys that mlperf_logging's training rules want of every benchmark, and those of ResNet's optimizers, up to the
/// start of the run, all at one time: that before any data was opened.
void write_begin(MlLog&, const TrainerOptions&, const MlRun&, MlLog::Time);

}  // namespace trireme
