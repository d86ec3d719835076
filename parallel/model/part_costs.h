// What the parts of a model cost: on this machine, measured by running each by itself, or counted from shapes.
#pragma once
#include <vector>

#include "parallel/model/chain.h"

namespace trireme {

/// Forward and both halves of backward of every part on the rows of x (a micro-batch; at least one row), `runs` times
/// each after one that prepares everything; the least time counts. Values and running statistics are left as they are,
/// gradients end cleared. Bytes are those of the tensors.
std::vector<PartCost> measure_costs(const Chain&, Parameters&, const Tensor& x, int runs = 5);
/// The same without a clock, as a dry run counts it (parallel/model/dry_run.h) for a machine of so many operations a
/// second: equal on every machine. x: only its shape, type and place count.
std::vector<PartCost> count_costs(const Chain&, Parameters&, const Tensor& x, double operations_per_second = 1e12);

}  // namespace trireme
