// The plan of a Step: the model split as its strategy asks, the parts' costs measured, and the strategy's rewrite.
#pragma once
#include <string>
#include <vector>

#include "parallel/model/chain.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// The model with its layers split over ranks as the strategy asks, behind a broadcast of rank 0's whole weights. A
/// collective call.
Module split_layers(const Strategy&, Module model, Mesh&);
/// The mesh axes along which ranks hold different parts of the weights: StepOptions::layer_axes and the strategy's.
std::vector<std::string> tensor_parallel_axes(const StepOptions&, const SplitOptions&);
/// The plan of the model's parts under the strategy. Costs are measured by rank 0 if the strategy wants them; in
/// virtual time they are counted on microbatch_example(). Throws Error for a plan that check() finds faults in (unless
/// options allow it) or that fits neither mesh nor model. A collective call.
Plan make_plan(const Strategy&, const Chain&, const Loss&, Optimizer&, Mesh&, const StepOptions&);

/// StepOptions::example with the rows of a micro-batch: of StepOptions::batch, if given, the largest share that a rank
/// trains at once under the plan. Without an example undefined.
Tensor microbatch_example(const Plan&, const Strategy&, const StepOptions&);

/// The plan of a strategy with what its steps agree on under these options, and its phases on call.
Plan with_agreements(const Plan&, const Strategy&, const StepOptions&, const Optimizer&, const Loss&);

}  // namespace trireme
