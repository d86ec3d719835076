// Phases on call: what ranks send between steps, in lists that are run by name and by no step. What ranks tell each
// other before there is a plan is none: their settings, costs, the whole weights of layers that are about to be split.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

namespace phases {
inline constexpr char set_up[] = "set-up",  ///< rank 0's weights and running statistics to all who hold the same
                                            /// All weights and running statistics to all ranks
                                            /// (Step::gather_weights); nothing where they are.
    evaluation[] = "evaluation",
                      consolidation[] = "consolidation",  ///< all optimizer state to all ranks (Step::consolidate)
    saving[] = "saving",        ///< one exchange of texts about a checkpoint, of which saving one takes several
    flush[] = "flush",          ///< the micro-batches in flight are run to their updates (Step::flush)
    diagnosis[] = "diagnosis";  ///< of a number that is not finite, behind an evaluation: forward, and where it was
}  // namespace phases

/// Mesh axes of more than one rank but for these, joined by +; empty: there are none.
std::string all_axes(const Plan&, const std::vector<std::string>& but = {});

/// Adds these phases to a plan that is complete. Action::payload says what they send. apart: axes along which ranks
/// hold different parts of the weights.
Plan with_phases_on_call(Plan, const std::vector<std::string>& apart);
/// The actions of a phase; none where the program has no such phase.
const std::vector<Action>& actions_on_call(const Program&, const std::string& phase);

}  // namespace trireme
