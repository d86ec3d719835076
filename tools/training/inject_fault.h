// Faults for tests: run.fault.
#pragma once
#include <cstdint>
#include <string>

#include "parallel/comm/world/world.h"
#include "parallel/runtime/step.h"

namespace trireme {

/// fault: "KIND:RANK:STEP", or empty. On that rank, before that step or the next one that it has, once (injected: it
/// has been; nantwice: twice): throw an Error; exit with status 3; hang; or raise SIGTERM, SIGSEGV, SIGABRT or SIGSTOP
/// in this thread (term, segv, abort, stop); make the step's inputs NaN (nan, nantwice), or one of its weights (weight;
/// which one, the step says), or flip a bit of its weights (flip); or call a collective that the others do not, or in
/// another way (kind, count, dtype). Throws Error for another text.
struct Injected {
  Tensor inputs;
  Step& step;
};
/// Throws Error (usage) for a text that is no fault, and for a rank or step that a run of so many ranks has not.
void check_fault(const std::string& fault, int ranks);
void inject_fault(const std::string& fault, World&, std::int64_t step, int& injected, const Injected& into);

}  // namespace trireme
