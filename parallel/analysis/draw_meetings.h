// meetings_text(): who of a plan meets whom, and when, where ranks do not have the same weights after every step, or
// servers keep them: for terminals.
#pragma once
#include <string>

#include "parallel/plan/plan.h"

namespace trireme {

/// Servers with what is sent to them, what they wait for and answer; the graph by which ranks mix, and who sends to
/// whom in its first rounds; the steps of phases that do not run in each. Empty: all ranks do the same in every step.
/// Of many ranks the first are shown.
std::string meetings_text(const Plan&);

}  // namespace trireme
