// Rollbacks: the handling of steps whose loss or gradients are not finite (run.on_nan = "rollback"). Steps are
// reproducible, so training again from the checkpoint distinguishes a transient hardware fault from a fault of data or
// settings.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tools/training/resume.h"
#include "tools/training/spike_detector.h"

namespace trireme {

/// The rollbacks of one run.
class Rollbacks {
 public:
  static constexpr int most = 3;
  explicit Rollbacks(double spike) : spikes_(spike), spikes_at_start_(spike) {}
  /// Checks a step's loss: see SpikeDetector::look().
  void look(double loss, std::int64_t step) { spikes_.look(loss, step); }
  /// Call after a checkpoint of this position was saved.
  void saved(const Progress& at) {
    start_ = at;
    spikes_at_start_ = spikes_;
    path_.clear();
  }
  bool spent() const { return count_ >= most; }
  int count() const { return count_; }
  /// Call for a step that was refused at this position. True: train the same samples again, once. False: skip them
  /// (PaLM, Chowdhery et al., 2022, section 5.1); count() increases by one.
  bool tries_again(const Progress& here);
  /// The checkpoint of the latest rollback, if none was saved since; else empty.
  const std::string& path() const { return path_; }
  /// The position after loading the checkpoint at `path`, which was saved at `saved`. again: continue with the samples
  /// after `saved`; else with the samples after `here`.
  Progress go_back(bool again, const std::string& path, const Progress& saved, const Progress& here);
  /// Call after a successful step. If it completes a retry of a refused step, returns a message and increases count().
  /// Else empty.
  std::string passed(const Progress& here);

 private:
  SpikeDetector spikes_, spikes_at_start_;
  Progress start_;                 // where training continued from the checkpoint
  std::optional<Progress> tried_;  // the refused step that is being tried again
  std::string path_;
  int count_ = 0;
};

}  // namespace trireme
