// Faults for tests: run.fault.
#pragma once
#include <cstdint>
#include <string>

#include "parallel/comm/world/world.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// The targets of a fault "KIND:RANK:STEP", which occurs once on that rank, before that step or its next one. KIND is
/// - throw, exit (with status 3) or hang;
/// - term, segv, abort or stop: raise SIGTERM, SIGSEGV, SIGABRT or SIGSTOP in this thread;
/// - nan, nantwice (twice): the step's inputs become NaN; weight: one weight does, which the step selects;
/// - flip: flip a bit of a weight;
/// - kind, count, dtype: call a collective that differs from the other ranks'.
struct Injected {
  Tensor inputs;  ///< of the step
  Step& step;     ///< with the weights
};
/// Throws Error (usage) for an invalid fault, and for a rank or step that does not exist with this number of ranks.
void check_fault(const std::string& fault, int ranks);
/// Injects the fault if it is due; empty: none. injected: number of times so far. Throws Error for another text.
void inject_fault(const std::string& fault, World&, std::int64_t step, int& injected, const Injected& into);

}  // namespace trireme
