// Stragglers: finds slow ranks, for which the others wait.
#pragma once
#include <string>

#include "parallel/comm/world/world.h"
#include "tools/training/console.h"
#include "tools/training/train_metrics.h"

namespace trireme {

/// Measures this rank's thread, which must have a FlightRecorder.
class Stragglers {
 public:
  /// Starts the measurement.
  void begin();
  /// Writes a line with the duration of each rank's steps since begin(), without waits for other ranks, to the log.
  /// Also prints it if one rank needs a quarter more time than another. Nothing for one rank. A collective call.
  void report(const EpochMetrics&, World&, Console&) const;

 private:
  std::int64_t waited_ = 0;  // microseconds waited before begin()
};

}  // namespace trireme
