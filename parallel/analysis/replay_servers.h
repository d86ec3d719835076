// replay_servers(): a run with servers beside a serial loop that applies the gradients of their workers in the order in
// which they came.
#pragma once
#include "parallel/analysis/verify_claims.h"

namespace trireme {

/// Every update of a server is to be the one of plain SGD, with a learning rate of 0.05, by one worker's gradient times
/// what the plan's `take` says, each gradient once and in the order of the worker's steps; and every worker is to train
/// with weights that the server has had, with its own gradients in them, and with those of the slowest worker up to as
/// many steps before as the plan's consistency allows. The order and the weights are read from the run. A collective
/// call.
ClaimResult replay_servers(const Subject&, Mesh&, const Strategy&, const VerifyOptions&);

}  // namespace trireme
