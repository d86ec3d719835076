// Watchdog: a thread that ends a process of which a rank has come to a standstill, and says where.
#pragma once
#include <string>
#include <thread>

namespace trireme {

/// Looks at the FlightRecorder of each rank of this process. One that has begun nothing, no kernel either, for longer
/// than its phase allows, and does not wait for others (whose waits have their own limit, TRIREME_TIMEOUT times what
/// scale_timeouts() says), hangs: it is named on stderr with what it did last, with the ranks that wait for it, and
/// crash() ends the process with a report that has the rank's stack. In a step 0.9 of TRIREME_TIMEOUT is allowed, so
/// that the rank is named before others give up on it; elsewhere (start, save, evaluate) six times TRIREME_TIMEOUT.
/// Time in which the whole process was stopped does not count.
class Watchdog {
 public:
  Watchdog();

 private:
  std::jthread thread_;
};

}  // namespace trireme
