// Resume: from a run directory back to the settings and the place of a run. A run's own config.toml is the base of its
// settings; what would change the training is refused by name, or taken and told with run.override.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/io/checkpoint.h"
#include "parallel/runtime/step.h"
#include "tools/training/config.h"

namespace trireme {

/// Where a run stands, and what its epoch has come to so far; equal on all ranks.
struct Progress {
  std::int64_t step = 0, epoch = 0;
  std::int64_t batch = 0, samples = 0;  ///< of this epoch, done
  std::int64_t correct = 0;             ///< of `counted` samples
  std::int64_t counted = 0;             ///< of this epoch's samples: those that loss and correct sum over
  double loss = 0;                      ///< summed over them
  double loss_scale = 0;                ///< f16; and the steps since it changed
  std::int64_t good_steps = 0;

  bool in_epoch() const { return samples > 0; }
  void next_epoch() { *this = {.step = step, .epoch = epoch + 1, .loss_scale = loss_scale, .good_steps = good_steps}; }
};
/// To and from a checkpoint.
void store(const Progress&, TrainState&);
Progress progress_of(const TrainState&);

/// What the next start of `train --resume` begins with: the run's config.toml, without what belongs to one start only
/// (run.max_steps, run.fault). Where config.toml is missing the settings of the newest checkpoint. Throws Error for a
/// directory without checkpoints.
Config resume_config(const std::string& run);

/// A run as it is found by rank 0.
struct ResumePoint {
  std::string path;
  std::vector<std::string> notes;  ///< LoadedCheckpoint's, and that config.toml was missing
  Progress progress;
  std::string partition;             ///< as in TrainState; empty when the ranks stand in another way now
  std::string norm_rows;             ///< as in TrainState
  std::vector<std::string> changes;  ///< that run.override lets pass, one sentence each
  bool reordered = false;            ///< they give the rest of an epoch other samples, or another order
};
/// The newest checkpoint of config.run.dir. Throws Error for one without checkpoints, and without run.override for
/// settings that change the training: all of them by name, with both values.
ResumePoint find_resume_point(const Config&);
/// Rank 0's, for all: path, partition, norm_rows and progress. A collective call.
void broadcast(ResumePoint&, World&);
/// TrainState::norm_rows of a step under the strategy: alike where batch norms see the same rows, whoever has them.
std::string norm_rows(const Step&, const Strategy&);
/// Says in a sentence how the rows that batch norms see differ from the run's; empty: they do not. Throws Error without
/// run.override.
std::string changed_norm_rows(const Config&, const ResumePoint&, const std::string& now);
/// The text that config.toml and checkpoints keep: without run.resume and run.override.
std::string kept_settings(Config);

}  // namespace trireme
