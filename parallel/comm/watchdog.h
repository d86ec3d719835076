// Watchdog: a thread that stops the process when one of its ranks hangs, and reports where.
#pragma once
#include <string>
#include <thread>

namespace trireme {

/// Checks the FlightRecorder of each rank of this process. A rank hangs if it has begun no action and no kernel for
/// longer than its phase allows, and does not wait for other ranks (waits have their own limit, TRIREME_TIMEOUT times
/// the factor of scale_timeouts()). stderr then names the rank, its last action and the ranks that wait for it, and
/// crash() stops the process with a report that has the rank's stack. The limit in a step is 0.9 of TRIREME_TIMEOUT, so
/// the rank is named before other ranks time out. In other phases (start, save, evaluate) it is six times
/// TRIREME_TIMEOUT. Time while the whole process was stopped does not count.
class Watchdog {
 public:
  Watchdog();

 private:
  std::jthread thread_;
};

}  // namespace trireme
