// Phases on call: actions that ranks run between steps, by name. Messages before there is a plan belong to no phase:
// settings, costs, whole weights of layers that are about to be split.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

namespace phases {
/// Rank 0's weights and running statistics to all ranks that hold the same weights.
inline constexpr char set_up[] = "set-up";
/// All weights and running statistics to all ranks (Step::gather_weights); none if each rank has them.
inline constexpr char evaluation[] = "evaluation";
/// All optimizer state to all ranks (StepProbe::consolidate).
inline constexpr char consolidation[] = "consolidation";
/// One exchange of texts about a checkpoint; saving a checkpoint takes several.
inline constexpr char saving[] = "saving";
/// Runs the micro-batches in flight to their updates (Step::flush).
inline constexpr char flush[] = "flush";
/// Finds the place of a number that is not finite, after an evaluation: forward, and the first layer that has it.
inline constexpr char diagnosis[] = "diagnosis";
}  // namespace phases

/// Mesh axes of more than one rank, except these, joined by +; empty: there are none.
std::string all_axes(const Plan&, const std::vector<std::string>& but = {});

/// Adds these phases to a plan that is complete. Action::payload says what they send. apart: axes along which ranks
/// hold different parts of the weights.
Plan with_phases_on_call(Plan, const std::vector<std::string>& apart);
/// The actions of a phase; none where the program has no such phase.
const std::vector<Action>& actions_on_call(const Program&, const std::string& phase);

}  // namespace trireme
