// Which ranks the others wait for.
#pragma once
#include <string>

#include "parallel/comm/world/world.h"
#include "tools/training/console.h"
#include "tools/training/train_metrics.h"

namespace trireme {

/// Of this rank's thread, which has a FlightRecorder.
class Stragglers {
 public:
  /// Counts from now on.
  void begin();
  /// Tells what each rank's steps took since then, without the time in which it waited for others, in a line: to the
  /// rank's log, and to people where a rank needs a quarter more than another. Nothing for one rank. A collective call.
  void report(const EpochMetrics&, World&, Console&) const;

 private:
  std::int64_t waited_ = 0;  // microseconds, before begin()
};

}  // namespace trireme
