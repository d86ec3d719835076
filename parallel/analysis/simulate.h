// simulate(plan): when each action would run, by discrete events. Ranks that share a role run the same list at the same
// times, so one rank per role is simulated, however many there are.
#pragma once
#include <vector>

#include "parallel/plan/timeline.h"

namespace trireme {

/// Seconds of actions come from the parts' PartCost; these are the others. Zero unless given.
struct SimulateOptions {
  double latency = 0;    ///< seconds before a message's first byte arrives
  double bandwidth = 0;  ///< bytes per second that a rank sends; 0: any number
  Index element = 4;     ///< bytes of a parameter
  double loss = 0;       ///< seconds of the loss of one micro-batch
  double update = 0;     ///< seconds per updated parameter
};

struct Simulation {
  /// One rank per role, in the roles' order. Waiting for a link or a partner is not in the spans, save those of recv.
  Timeline timeline;
  double makespan = 0;       ///< seconds from first to last action
  std::vector<double> busy;  ///< seconds of compute, by role
  /// Idle over busy time, all roles together: 0 is a full machine. For equal stages (p - 1) / m under 1F1B.
  double bubble = 0;
  std::vector<int> in_flight;  ///< peak_in_flight, by role
};

/// Compute actions run one after another, communication starts in list order (and then overlaps); a message leaves when
/// both ends have started and the sender's link is free, and carries the output of its part (or that output's
/// gradient). The sizes of the mesh are the plan's axes. An action on_ready starts when backward has gone through the
/// part's slice down to its beginning, at an even pace. A collective of n bytes over p ranks takes, by rings (Patarasuk
/// and Yuan, JPDC 69, 2009), with latency a and b seconds per byte: all_reduce and average 2(p-1)(a + n/p b),
/// reduce_scatter and all_gather (p-1)(a + n/p b), broadcast (p-1)a + n b. The plan has been checked; throws Error for
/// one that does not end.
Simulation simulate(const Plan&, const SimulateOptions& = {});

}  // namespace trireme
