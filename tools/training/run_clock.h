// RunClock: the clock of a run: the steady clock, or in virtual time the simulated clock of its rank. Also stores
// virtual time in checkpoints: clocks, links, messages in flight.
#pragma once
#include <map>
#include <string>

#include "parallel/comm/virtual_clock.h"
#include "parallel/comm/world/world.h"

namespace trireme {

/// Nanoseconds as seconds.
inline double seconds(Nanoseconds time) { return static_cast<double>(time) / 1e9; }

/// The clock of one rank's run.
class RunClock {
 public:
  /// The world must outlive it.
  explicit RunClock(World& world) : simulated_(world.clock()) {}
  VirtualClock* simulated() const { return simulated_; }  ///< the simulated clock; null in real time
  Nanoseconds now() const;  ///< in virtual time since the run began, else since an arbitrary start

 private:
  VirtualClock* simulated_;
};

/// While it lives, the rank's actions take no simulated time.
class ClockPause {
 public:
  explicit ClockPause(const RunClock& clock) : clock_(clock.simulated()) {
    if (clock_) before_ = clock_->save();
  }
  ~ClockPause() {
    if (clock_) clock_->restore(before_);
  }
  ClockPause(const ClockPause&) = delete;
  const VirtualState& before() const { return before_; }  ///< virtual time when the pause began

 private:
  VirtualClock* clock_;
  VirtualState before_;
};

/// The state as rank-local tensors of a checkpoint: "virtual.clock", "virtual.turns", "virtual.message.0" and so on.
std::map<std::string, Tensor> to_tensors(const VirtualState&);
/// The inverse; ignores other names. Throws Error if "virtual.clock" is missing.
VirtualState from_tensors(const std::map<std::string, Tensor>&);

}  // namespace trireme
