// ChargedTime: advances a rank's virtual clock by the modelled durations of its program's computations. It does nothing
// in real time.
#pragma once
#include <vector>

#include "parallel/comm/virtual_clock.h"
#include "parallel/comm/world/world.h"
#include "parallel/plan/check/order.h"
#include "parallel/plan/liveness.h"

namespace trireme {

/// Charges one rank's computations to its virtual clock.
class ChargedTime {
 public:
  /// All references must outlive it.
  ChargedTime(const Plan&, const Program&, World&);

  bool simulated() const { return clock_ != nullptr; }  ///< whether time is virtual
  void begin_step(std::int64_t step) { step_ = step; }  ///< step: number of steps before this one
  /// Call before a segment runs: computes the time at which the pass of each of its parts ends. first: the segment's
  /// first pass, in which the executor runs the whole segment.
  void begin_segment(ActionId first, const Segment&);
  /// Advances the clock to the end of this pass.
  void end(ActionId pass) {
    if (clock_) advance(spans_[static_cast<std::size_t>(pass)].end);
  }
  /// Advances the clock to the start of a reduction that overlaps with backward: the time when its gradients are
  /// complete.
  void start(ActionId reduction);
  /// Advances the clock by the duration of an action that is not a pass of a segment.
  void run(ActionId id) {
    if (clock_) clock_->advance(time_of(id));
  }

 private:
  struct Span {
    Nanoseconds begin = 0, end = 0;
  };
  /// Advances the clock to a time within the segment, plus the time that its layers have waited for other ranks.
  void advance(Nanoseconds planned);
  Nanoseconds time_of(ActionId) const;

  const Plan& plan_;
  const Program& program_;
  VirtualClock* clock_;  // null: time is real
  int rank_;             // of the world
  std::int64_t step_ = 0;
  std::vector<std::vector<Dependency>> dependencies_;
  std::vector<Span> spans_;  // of passes
  Nanoseconds waited_ = 0;   // time for which layers of the current segment have waited for other ranks
  Nanoseconds passed_ = 0;   // latest time of the current segment
};

}  // namespace trireme
