// replay_servers(): compares a run with servers to a serial loop that applies the workers' gradients in the order of
// their arrival.
#pragma once
#include "parallel/analysis/verify_claims.h"

namespace trireme {

/// Checks that every update of a server is plain SGD with learning rate 0.05 by one worker's gradient times the factor
/// of the plan (argument `scale`), and that each gradient is applied once, in the order of the worker's steps. Also
/// checks the weights with which each worker trains: the server had them, they include the worker's earlier gradients,
/// and those of the slowest worker up to the number of steps that the plan's consistency allows. Order and weights are
/// read from the run. A collective call.
ClaimResult replay_servers(const Subject&, Mesh&, const Strategy&, const VerifyOptions&);

}  // namespace trireme
