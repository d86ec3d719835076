// Saver: when a run's checkpoints are written, and by whom: behind training (CheckpointWriter), or while it waits.
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

/// Waits for ranks that open or save a run, or evaluate, last so many times what they may in a step (TRIREME_TIMEOUT).
inline constexpr double slow_phase = 6;

class Saver {
 public:
  /// Options and world must outlive it. A collective call.
  Saver(const TrainerOptions&, World&);
  /// Throws Error where the run's directory cannot be written, or its disk has no room for two checkpoints; tells
  /// where it has none for all that are to be kept. A collective call.
  void check_room(RunLog&, Step&);
  /// Behind the step state.step, own: SaveOptions::local. Throws what the save before has failed with. A collective
  /// call.
  void save(RunLog&, Step&, const TrainState&, std::map<std::string, Tensor> own);
  /// Waits until the last save is durable; its path. A collective call.
  std::string wait();
  /// CheckpointWriter::written(); zeros where nothing is written behind training.
  std::pair<double, double> written() const { return writer_ ? writer_->written() : std::pair(0.0, 0.0); }
  /// Whether this rank wants all to save: checkpoint.minutes have passed, or the save under way has failed, of which
  /// the next one tells.
  bool is_due() const;

 private:
  using Clock = std::chrono::steady_clock;
  /// Waits for the save under way: for other ranks, for all that reports know, while its thread does.
  void finish() const;
  const TrainerOptions& options_;
  const std::int64_t kept_;
  const bool main_;
  std::unique_ptr<Communicator> comm_;  // of the writer's threads; null: one rank
  std::atomic<bool> meets_ = false;     // the writer's thread waits for those of other ranks
  std::unique_ptr<CheckpointWriter> writer_;
  Clock::time_point last_ = Clock::now();
  std::string path_;
};

}  // namespace trireme
