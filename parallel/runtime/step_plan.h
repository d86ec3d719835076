// The plan of a Step: splits the model for the strategy, measures the costs of the parts, and applies the strategy.
#pragma once
#include <string>
#include <vector>

#include "parallel/model/chain.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// The model with its layers split over ranks for the strategy. initialized: first rank 0 sends its whole weights to
/// all ranks; false: they are drawn later. A collective call.
Module split_layers(const Strategy&, Module model, Mesh&, const Tensor& example, bool initialized);
/// The mesh axes along which ranks hold different parts of the weights: StepOptions::layer_axes and the strategy's
/// axes.
std::vector<std::string> tensor_parallel_axes(const StepOptions&, const SplitOptions&);
/// The plan of the model's parts under the strategy. If the strategy needs the parts' costs, rank 0 measures them; in
/// virtual time they are counted on microbatch_example(). Throws Error for a plan that does not fit the mesh or the
/// model, and, with StepOptions::refuse_unsound, for a plan in which check() finds faults. A collective call.
Plan make_plan(const Strategy&, const Chain&, const Loss&, Optimizer&, Mesh&, const StepOptions&);

/// PartProfile::example with the rows of the largest micro-batch that a rank trains under the plan, for a global batch
/// of PartProfile::batch rows; without a batch, the example unchanged. Undefined without an example.
Tensor microbatch_example(const Plan&, const Strategy&, const PartProfile&);

/// The plan of a strategy with the `agree` actions that these options need (parallel/strategies/agreements.h), and with
/// its phases on call (parallel/strategies/on_call.h).
Plan with_agreements(const Plan&, const Strategy&, const StepOptions&, const Optimizer&, const Loss&);

}  // namespace trireme
