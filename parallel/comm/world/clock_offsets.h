// How far the clocks of ranks are apart.
#pragma once
#include <functional>
#include <vector>

#include "parallel/comm/world/world.h"

namespace trireme {

/// Seconds by which each rank's clock now() is ahead of rank 0's, by rank: what it says in the middle of the quickest
/// of ten round trips (Cristian, 1989), wrong by at most half of that; 0 where it is less than that, as of processes on
/// one host, whose clock is the same. A collective call; rank 0's counts.
std::vector<double> clocks_ahead(World&, const std::function<double()>& now);

}  // namespace trireme
