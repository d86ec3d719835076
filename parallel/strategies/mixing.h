// Mixing: functions for strategies whose ranks train separately and average weights or gradients over an axis in some
// steps (local SGD, gossip).
#pragma once
#include "parallel/plan/action_context.h"
#include "parallel/strategies/custom.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {

/// The mean of the slice's weights or gradients over the ranks of the axis, weighted by the rows of each rank in the
/// step. The caller sets the steps.
CustomAction mean_by_rows(OperandKind of, const std::string& axis);

/// ActionRow::memory of an action that allocates that many vectors of its slice's size.
template <Index vectors>
Index memory_of_slices(const Action& a, int, Index element) {
  return vectors * a.slice.size() * element;
}

/// ActionRow::vector_ops of an action with that many operations.
template <int count>
int vector_ops(const Action&, int) {
  return count;
}

/// Checks that ranks along the axis may train separately: nothing synchronizes their weights yet. Throws Error if not.
void check_apart(const Plan&, const std::string& axis, const std::string& strategy);
/// Adds an action like `like` on each slice of weights that a program updates, over the axis, in steps of the trigger,
/// after everything else that writes weights.
void mix_weights(Plan&, const Action& like, const std::string& axis, const std::string& phase, const Trigger&);
/// Sets `state`, one number per weight, to the values of the weights at the beginning of step `from`. The caller adds
/// the state to the plan.
void remember_weights(Plan&, const std::string& state, std::int64_t from);
/// Checks the mixing matrix of an action with Peer::pairs, in which [i][j] is the share of rank j's weights that rank i
/// gets. Every column must add up to 1, with `rows` also every row, and ranks must receive what is sent to them. keeps:
/// share that a rank keeps; gives(d): share for each of d receivers. Checks the first steps of up to 64 ranks. Returns
/// the fault; empty: none.
std::string mixing_fault(const Plan&, const Program&, const Action&, double keeps,
                         const std::function<double(int)>& gives, bool rows);
/// Number of these exchanges in which the rank sends.
int sends_of(const std::vector<RankPair>&, int rank);
/// The strategy with batch norm on each rank's rows.
Strategy apart(Strategy);

}  // namespace trireme
