// Finds the origin of a loss that is not finite. A step calls it once, before it throws.
#pragma once
#include "framework/layers/module.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// Runs the forward again, layer by layer, for the batch of the current StepContext (so with the same masks), and
/// describes the first tensor that is not finite on any rank; empty: none. comm: the ranks that share the batch, which
/// all call this; null: one rank.
std::string first_non_finite(const Module& model, const Tensor& x, Communicator* comm);

}  // namespace trireme
