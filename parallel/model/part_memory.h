// The memory that the parts of a model take in each pass, counted tensor by tensor as a step makes them: neighbouring
// parts on one tape, as the executor runs the segments of a plan (parallel/plan/liveness.h).
#pragma once
#include <vector>

#include "parallel/model/dry_run.h"

namespace trireme {

/// Sets the bytes of the parts' costs: saved, halo, output, unsaved and those of passes. Runs the parts forward and
/// backward twice, backward whole and by halves, under the caller's StepContext; a caller that holds a dry LaunchWatch
/// pays for no kernel. options.plan says where segments end (null: there is one), and whether gradients of weights add
/// up over micro-batches; they are left.
void count_memory(const Chain&, Parameters&, std::vector<PartInfo>&, const Tensor& x, const DryRunOptions& options);
/// The most of both in each of the bytes.
void raise_bytes(PartCost& to, const PartCost& found);
/// Bytes that grow with the rows: a's become those at `share` of the way from a to b, never below 0.
void move_bytes(PartCost& a, const PartCost& b, double share);
/// What two neighbouring parts cost together, as if they were one: a, then b.
PartCost joined(const PartCost& a, const PartCost& b);

}  // namespace trireme
