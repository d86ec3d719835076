// ChargedTime: lets pass on a rank's virtual clock what the computations of its program take by their counted costs.
// Where time is real it does nothing.
#pragma once
#include <vector>

#include "parallel/comm/virtual_clock.h"
#include "parallel/comm/world/world.h"
#include "parallel/plan/order.h"
#include "parallel/runtime/tapes.h"

namespace trireme {

class ChargedTime {
 public:
  /// All must outlive it.
  ChargedTime(const Plan&, const Program&, World&);

  bool simulated() const { return clock_ != nullptr; }
  void begin_step(std::int64_t step) { step_ = step; }
  /// Before the passes of a segment run, all on behalf of the first of them: from now on it is known when each ends.
  void begin_segment(ActionId first, const Tapes&);
  void end(ActionId pass) {
    if (clock_) advance(spans_[static_cast<std::size_t>(pass)].end);
  }
  /// A reduction starts in the midst of its backward: when its gradients are complete.
  void start(ActionId reduction);
  /// An action that is no pass of a segment.
  void run(ActionId id) {
    if (clock_) clock_->advance(time_of(id));
  }

 private:
  struct Span {
    Nanoseconds begin = 0, end = 0;
  };
  /// To a moment of the segment. What its layers have waited for other ranks meanwhile comes on top.
  void advance(Nanoseconds planned);
  Nanoseconds time_of(ActionId) const;

  const Plan& plan_;
  const Program& program_;
  VirtualClock* clock_;  // null: time is real
  int rank_;             // of the world
  std::int64_t step_ = 0;
  std::vector<std::vector<Dependency>> dependencies_;
  std::vector<Span> spans_;              // of passes
  Nanoseconds waited_ = 0, passed_ = 0;  // by the layers of the segment under way; its last moment
};

}  // namespace trireme
