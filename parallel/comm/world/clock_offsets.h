// Offsets between the clocks of ranks.
#pragma once
#include <functional>
#include <vector>

#include "parallel/comm/world/world.h"

namespace trireme {

/// Seconds by which each rank's clock now() is ahead of rank 0's, by rank. It is measured at the middle of the fastest
/// of ten round trips (Cristian, 1989), with an error of at most half that trip. An offset within that error is 0, as
/// for processes on one host, which share a clock. A collective call; only rank 0's result is valid.
std::vector<double> clocks_ahead(World&, const std::function<double()>& now);

}  // namespace trireme
