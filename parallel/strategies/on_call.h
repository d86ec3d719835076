// Phases on call: named lists of actions that ranks run between steps, when the Step calls them by name. Messages that
// ranks send before the plan exists belong to no phase: settings, costs, and weights of layers before they are divided.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

namespace phases {
/// Rank 0 sends weights and running statistics to all ranks that hold the same weights.
inline constexpr char set_up[] = "set-up";
/// All ranks get all weights and running statistics (Step::gather_weights). It has no actions if each rank has them.
inline constexpr char evaluation[] = "evaluation";
/// All ranks get all optimizer state (StepProbe::consolidate).
inline constexpr char consolidation[] = "consolidation";
/// One exchange of texts about a checkpoint; saving a checkpoint takes several of them.
inline constexpr char saving[] = "saving";
/// Runs the micro-batches in flight to their updates (Step::flush).
inline constexpr char flush[] = "flush";
/// Finds the origin of a number that is not finite, after `evaluation`: each rank runs forward, and ranks agree on the
/// first layer with such a number.
inline constexpr char diagnosis[] = "diagnosis";
}  // namespace phases

/// The mesh axes of more than one rank, except those in `but`, joined by +; empty: there are none.
std::string all_axes(const Plan&, const std::vector<std::string>& but = {});

/// The plan with these phases; no strategy may change it afterwards. Action::payload names the data that they send.
/// apart: mesh axes along which ranks hold different parts of the weights.
Plan with_phases_on_call(Plan, const std::vector<std::string>& apart);
/// The actions of a phase on call; empty if the program has no such phase.
const std::vector<Action>& actions_on_call(const Program&, const std::string& phase);

}  // namespace trireme
