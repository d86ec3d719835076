// meetings_text(): which ranks of a plan exchange data, and when, for a terminal. It is for plans in which ranks have
// different weights after some steps, or servers keep the weights.
#pragma once
#include <string>

#include "parallel/plan/plan.h"

namespace trireme {

/// Lists servers with the messages that they receive and answer, the graph by which ranks mix weights with the messages
/// of its first rounds, and the steps of phases that do not run in every step. Empty: all ranks do the same in every
/// step. Only the first of many ranks are shown.
std::string meetings_text(const Plan&);

}  // namespace trireme
