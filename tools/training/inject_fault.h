// Faults for tests: run.fault.
#pragma once
#include <cstdint>
#include <string>

#include "parallel/comm/world/world.h"

namespace trireme {

/// fault: "KIND:RANK:STEP", or empty. On that rank, before that step or the next one that it has, once (injected: it
/// has been): throw an Error; exit with status 3; hang; or raise SIGTERM, SIGSEGV, SIGABRT or SIGSTOP in this thread
/// (term, segv, abort, stop). Throws Error for another text.
void inject_fault(const std::string& fault, const World&, std::int64_t step, bool& injected);

}  // namespace trireme
