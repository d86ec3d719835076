// StopRequest: who may ask a run to stop or to save between two steps: TrainerInput::request (signals), run.time_limit,
// and the end of a Slurm job. All ranks act on it behind the same step.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/runtime/step.h"
#include "tools/training/console.h"
#include "tools/training/trainer_options.h"

namespace trireme {

class StopRequest {
 public:
  /// request may be null. Limits are those of real time: a run in virtual time has none. time_limit counts from now.
  StopRequest(std::function<std::string()> request, const TrainerOptions&, const World&);

  /// StepOptions::flags by which ranks tell each other; none where nobody may ask.
  std::vector<std::string> flags() const;
  /// Before a step. What this rank is asked for, or what the time says, is told to the others by the next step in which
  /// all meet. Where they meet by messages alone (no flags) that is meet().
  void take(Step&, Console&);
  /// This rank wants all to save behind the step; nothing where they meet by messages alone, which save between
  /// batches.
  void save() { save_ = true; }
  /// There: behind the batches that are open, where they save anyway. A collective call.
  void meet(Step&, World&, Console&);
  /// Whether all know by now that one of them was asked to stop.
  bool stops(const Step& step) const { return step.raised("stop") || agreed_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  bool may_ask() const { return request_ || end_; }
  bool is_late();

  std::function<std::string()> request_;
  std::optional<Clock::time_point> end_;  // of rank 0, who tells the others; the others have one, too, and do not ask
  bool minutes_, main_;                   // checkpoint.minutes; rank 0
  Clock::time_point last_;                // when it was asked for the last time
  Seconds longest_{0};                    // between two times: a step, a save, an evaluation
  bool save_ = false, wanted_ = false, agreed_ = false, asked_ = false;
};

}  // namespace trireme
