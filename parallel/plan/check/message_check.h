// MessageCheck: runs a plan's messages and collectives on a few mesh coordinates, with actions that take no time, and
// reports what would deadlock or would not match.
#pragma once
#include "parallel/plan/plan.h"

namespace trireme {

/// Adds a line to faults for each message without a partner, messages that cross, collectives that differ,
/// and for a deadlock.
void check_messages(const Plan& plan, const std::string& data_axis, int data_ranks, std::vector<std::string>& faults);

}  // namespace trireme
