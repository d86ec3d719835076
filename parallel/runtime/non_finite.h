// Finds the origin of a loss that is not finite. A step calls it once, before it throws.
#pragma once
#include "framework/layers/module.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// Runs the forward of x [rows, ...] again, layer by layer, under the current StepContext, so that dropout masks are
/// those of the step. Returns a description of the first input, parameter or output that is not finite on any rank;
/// empty: all are finite. comm: the ranks that share the batch, all of which call this; null: one rank.
std::string first_non_finite(const Module& model, const Tensor& x, Communicator* comm);

}  // namespace trireme
