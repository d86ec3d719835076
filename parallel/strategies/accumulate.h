// What strategies that work in micro-batches share.
#pragma once
#include "parallel/strategies/strategy.h"

namespace trireme {

/// The serial plan's forward and backward once per micro-batch, then its update.
Plan repeat(Plan, int microbatches, const std::string& strategy);
/// Throws Error unless the plan is as serial() made it.
void check_untouched(const Plan&, const std::string& strategy);

}  // namespace trireme
