// Which ranks the others wait for.
#pragma once
#include <string>

#include "parallel/comm/world/world.h"
#include "tools/training/train_metrics.h"

namespace trireme {

/// Of this rank's thread, which has a FlightRecorder.
class Stragglers {
 public:
  /// Counts from now on.
  void begin();
  /// What each rank's steps took since then, without the time in which it waited for others, in a line for people;
  /// empty for one rank. A collective call.
  std::string report(const EpochMetrics&, World&) const;

 private:
  std::int64_t waited_ = 0;  // microseconds, before begin()
};

}  // namespace trireme
