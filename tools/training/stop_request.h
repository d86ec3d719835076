// StopRequest: requests to stop or save a run between two steps, from TrainerInput::request (signals), run.time_limit,
// and the end of a Slurm job. All ranks act on a request after the same step.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/runtime/step.h"
#include "parallel/runtime/step_flags.h"
#include "tools/training/console.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// The requests of one run.
class StopRequest {
 public:
  /// request may be null. Limits are in real time; a run in virtual time has none. time_limit counts from now.
  StopRequest(std::function<std::string()> request, const TrainerOptions&, const World&);

  /// FlagOptions::names with which ranks exchange requests; empty if there can be none.
  std::vector<std::string> flags() const;
  /// Call before a step: takes a request, or a limit that is reached. The next step that exchanges flags informs the
  /// other ranks; without flags (ranks that only exchange messages), meet() does.
  void take(Step&, Console&);
  /// Requests a save after the step; does nothing without flags, since such runs save between batches.
  void save() { save_ = true; }
  /// Exchanges requests without flags: call after the open batches, before a save. A collective call.
  void meet(Step&, World&, Console&);
  /// Whether all ranks know of a request to stop.
  bool stops(Step& step) const { return StepFlags(step).raised("stop") || agreed_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  bool may_ask() const { return request_ || end_; }
  bool is_late();

  std::function<std::string()> request_;
  std::optional<Clock::time_point> end_;  // rank 0's limit counts; other ranks have one, but do not check it
  bool minutes_, main_;                   // whether checkpoint.minutes is set; whether this is rank 0
  Clock::time_point last_;                // time of the last check
  Seconds longest_{0};                    // longest time between two checks: a step, a save, an evaluation
  bool save_ = false, wanted_ = false, agreed_ = false, asked_ = false;
};

}  // namespace trireme
