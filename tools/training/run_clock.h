// RunClock: the time by which a run is told: the steady clock's, or in virtual time the simulated clock of its rank.
// And what a checkpoint keeps of virtual time: clocks, links, messages in flight.
#pragma once
#include <map>
#include <string>

#include "parallel/comm/virtual_clock.h"
#include "parallel/comm/world/world.h"

namespace trireme {

/// As a number to show and to divide by.
inline double seconds(Nanoseconds time) { return static_cast<double>(time) / 1e9; }

class RunClock {
 public:
  /// The world must outlive it.
  explicit RunClock(World& world) : simulated_(world.clock()) {}
  VirtualClock* simulated() const { return simulated_; }  ///< null where time is real
  Nanoseconds now() const;  ///< in virtual time since the run began, else since some moment

 private:
  VirtualClock* simulated_;
};

/// While it lives, what its rank does takes no simulated time.
class ClockPause {
 public:
  explicit ClockPause(const RunClock& clock) : clock_(clock.simulated()) {
    if (clock_) before_ = clock_->save();
  }
  ~ClockPause() {
    if (clock_) clock_->restore(before_);
  }
  ClockPause(const ClockPause&) = delete;
  const VirtualState& before() const { return before_; }  ///< of virtual time: when it began

 private:
  VirtualClock* clock_;
  VirtualState before_;
};

/// As rank-local state of a checkpoint: "virtual.clock", "virtual.turns", "virtual.message.0" and so on.
std::map<std::string, Tensor> to_tensors(const VirtualState&);
/// The reverse; other names are left alone. Throws Error where "virtual.clock" is missing.
VirtualState from_tensors(const std::map<std::string, Tensor>&);

}  // namespace trireme
