// An emulated run beside the simulated one: a Step of layers that sleep, on emulated links, and simulate() of the same
// plan on the same cluster.
#pragma once
#include <string>
#include <vector>

#include "parallel/analysis/simulate.h"
#include "parallel/comm/world/rank_grid.h"

namespace trireme::test {

/// What is run. Its payloads are tiny: links are slow in proportion.
struct EmulatedCase {
  std::vector<Axis> mesh;
  std::string strategy;
  Cluster cluster;
  int microbatches = 1;
  int parts = 4;                                                         ///< layers, each a part
  Index weights = 1000;                                                  ///< f32 elements of a part
  Index width = 25;                                                      ///< f32 elements of an activation
  double forward = 0.02, backward_input = 0.02, backward_weight = 0.02;  ///< seconds of a part and micro-batch
  int steps = 4;
  int servers = 0;  ///< of the ranks along data: they read no rows
};
struct EmulatedTimes {
  double simulated = 0;     ///< Simulation::makespan
  double emulated = 0;      ///< seconds of real time, from the moment at which all ranks began to the end of the last
  double bubble = 0;        ///< Simulation::bubble
  bool same_order = false;  ///< in the last step each rank (servers aside) started its actions as simulated, by stream
  double lateness = 0;      ///< seconds by which a sleep came late, mean
  double processor = 0;     ///< seconds of cores per second of real time
  double error() const { return emulated / simulated - 1; }
};
/// Without servers a first step, which is not counted, announces shapes and does not sleep. Throws Error as Step does.
EmulatedTimes times_of(const EmulatedCase&);

}  // namespace trireme::test
