// Rollbacks: what a run does about a step whose loss or gradients are not finite (run.on_nan rollback). A step is
// exact, so training it again from the checkpoint tells a passing fault of a processor or memory from data and
// settings.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tools/training/resume.h"
#include "tools/training/spike_detector.h"

namespace trireme {

class Rollbacks {
 public:
  static constexpr int most = 3;
  explicit Rollbacks(double spike) : spikes_(spike), spikes_at_start_(spike) {}
  /// As SpikeDetector::look().
  void look(double loss, std::int64_t step) { spikes_.look(loss, step); }
  /// The newest checkpoint is of this place.
  void saved(const Progress& at) { start_ = at, spikes_at_start_ = spikes_, path_.clear(); }
  bool spent() const { return count_ >= most; }
  int count() const { return count_; }
  /// Whether the run, refused here, trains the same samples again, once; else these are left out (PaLM, Chowdhery et
  /// al., 2022, section 5.1), and count() is one more.
  bool tries_again(const Progress& here);
  /// The checkpoint that training went back to, if none was saved since; else empty.
  const std::string& path() const { return path_; }
  /// Where the run stands with the checkpoint at `path`, of the place `saved`: there, with the samples that came then;
  /// or, not again, with those that come behind `here`.
  Progress go_back(bool again, const std::string& path, const Progress& saved, const Progress& here);
  /// Behind a step that was taken. Where it is the first behind a step that was refused and tried again: what to tell,
  /// and count() is one more. Else empty.
  std::string passed(const Progress& here);

 private:
  SpikeDetector spikes_, spikes_at_start_;
  Progress start_;                 // where training went on from the checkpoint
  std::optional<Progress> tried_;  // where the run was refused, and is on its way to again
  std::string path_;
  int count_ = 0;
};

}  // namespace trireme
