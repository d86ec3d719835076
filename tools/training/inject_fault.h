// Faults for tests: run.fault.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "parallel/comm/world/world.h"

namespace trireme {

/// fault: "KIND:RANK:STEP", or empty. On that rank, before that step or the next one that it has, once (injected: it
/// has been): throw an Error; exit with status 3; hang; or raise SIGTERM, SIGSEGV, SIGABRT or SIGSTOP in this thread
/// (term, segv, abort, stop). Returns what the caller is to do: "nan" (to its inputs), "flip" (a bit of its weights);
/// else nothing. Throws Error for another text.
std::string_view inject_fault(const std::string& fault, const World&, std::int64_t step, bool& injected);

}  // namespace trireme
