// Costs of a model's parts: measured on this machine by running each part alone, or counted from shapes.
#pragma once
#include <vector>

#include "parallel/comm/cluster.h"
#include "parallel/model/chain.h"

namespace trireme {

/// Measures forward and both halves of backward of every part on the rows of x (a micro-batch of at least one row).
/// Each runs `runs` times after a warm-up; the shortest time counts. Values and running statistics are unchanged;
/// gradients are cleared at the end. Bytes count the tensors' elements. keeps_memory: false: after each part the memory
/// of gradients, and of weights that had none, returns to the system, for models larger than a rank; backward then
/// takes longer.
std::vector<PartCost> measure_costs(const Chain&, Parameters&, const Tensor& x, int runs = 5, bool keeps_memory = true);
/// Counts the costs by a dry run (parallel/model/dry_run.h) for a device with these rates; equal on all machines. x:
/// only shape, type and device matter.
std::vector<PartCost> count_costs(const Chain&, Parameters&, const Tensor& x, const DeviceRates& = {});

}  // namespace trireme
