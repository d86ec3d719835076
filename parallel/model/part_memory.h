// Memory of each pass of a model's parts, counted tensor by tensor as in a step: consecutive parts share a tape, as the
// executor runs the segments of a plan (parallel/plan/liveness.h).
#pragma once
#include <vector>

#include "parallel/model/dry_run.h"

namespace trireme {

/// Sets the bytes of the parts' costs: saved, halo, output, unsaved, and those of passes. Runs the parts forward and
/// backward twice under the caller's StepContext, once with backward in halves. With a dry LaunchWatch in the caller no
/// kernel runs. options.plan gives the ends of segments (null: one segment), and whether gradients accumulate over
/// micro-batches. Gradients are not cleared.
void count_memory(const Chain&, Parameters&, std::vector<PartInfo>&, const Tensor& x, const DryRunOptions& options);
/// The maximum of both for each of the bytes.
void raise_bytes(PartCost& to, const PartCost& found);
/// Interpolates bytes that grow with the rows from a to b at `share`, and stores them in a; never below 0.
void move_bytes(PartCost& a, const PartCost& b, double share);
/// The cost of two consecutive parts a, b as one part.
PartCost joined(const PartCost& a, const PartCost& b);

}  // namespace trireme
