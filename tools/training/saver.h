// Saver: schedules and writes a run's checkpoints, in the background (CheckpointWriter) or while training waits.
#pragma once
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "framework/io/checkpoint_writer.h"
#include "parallel/runtime/step.h"
#include "tools/training/run_log.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// Factor of TRIREME_TIMEOUT for waits while ranks open, save or evaluate a run.
inline constexpr double slow_phase = 6;

/// Writes the checkpoints of one run.
class Saver {
 public:
  /// Options and world must outlive it. A collective call.
  Saver(const TrainerOptions&, World&);
  /// Throws Error if the run's directory cannot be written or its disk has no room for two checkpoints. Warns if it has
  /// no room for all checkpoints that are kept. A collective call.
  void check_room(RunLog&, Step&);
  /// Saves after step state.step. own: SaveOptions::local. Throws the error of the previous save. A collective call.
  void save(RunLog&, Step&, const TrainState&, std::map<std::string, Tensor> own);
  /// Waits until the last save is durable and returns its path. A collective call.
  std::string wait();
  /// CheckpointWriter::written(); zeros if checkpoints are not written in the background.
  std::pair<double, double> written() const { return writer_ ? writer_->written() : std::pair(0.0, 0.0); }
  /// Whether this rank requests a save: checkpoint.minutes have passed, or the current save has failed, which the next
  /// save reports.
  bool is_due() const;

 private:
  using Clock = std::chrono::steady_clock;
  /// Waits for the current save. While the writer's thread waits for other ranks, this rank is reported as waiting,
  /// too.
  void finish() const;
  const TrainerOptions& options_;
  const std::int64_t kept_;
  const bool main_;
  std::unique_ptr<Communicator> comm_;  // of the writer's threads; null: one rank
  std::atomic<bool> meets_ = false;     // whether the writer's thread waits for other ranks' threads
  std::unique_ptr<CheckpointWriter> writer_;
  Clock::time_point last_ = Clock::now();
  std::string path_;
};

}  // namespace trireme
