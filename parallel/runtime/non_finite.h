// Where a loss that is not finite came from. Used once, on the way out.
#pragma once
#include "framework/layers/module.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// Runs the forward again, layer by layer, for the batch of the current StepContext (so with the same masks), and says
/// in words which tensor is the first that is not finite on any rank; empty: none. comm: the ranks that share the
/// batch, all of which call this; null: nobody else.
std::string first_non_finite(const Module& model, const Tensor& x, Communicator* comm);

}  // namespace trireme
