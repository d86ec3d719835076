// Mixing: functions for strategies whose ranks train separately and average weights or gradients over an axis in some
// steps (local SGD, gossip).
#pragma once
#include "parallel/plan/action_context.h"
#include "parallel/strategies/custom.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {

/// An action that replaces the weights or gradients of a slice (`of`) by their mean over the ranks of the axis,
/// weighted by each rank's number of rows in the step. The caller sets the steps.
CustomAction mean_by_rows(OperandKind of, const std::string& axis);

/// ActionRow::memory, in bytes, of an action that allocates `vectors` vectors of its slice's length. element: bytes of
/// an element.
template <Index vectors>
Index memory_of_slices(const Action& a, int, Index element) {
  return vectors * a.slice.size() * element;
}

/// ActionRow::vector_ops of an action with `count` elementwise operations on vectors of its slice's length.
template <int count>
int vector_ops(const Action&, int) {
  return count;
}

/// Throws Error unless ranks along the axis may train separately: no action averages their weights or sums their
/// gradients yet. strategy: its name, for the message.
void check_apart(const Plan&, const std::string& axis, const std::string& strategy);
/// Adds a copy of the action `like` for each slice of weights that a program updates, over the axis, after all other
/// actions that write weights, among them gathers of shards (gather_after_updates()). phase, trigger: name of the new
/// phase, and the steps in which it runs.
void mix_weights(Plan&, const Action& like, const std::string& axis, const std::string& phase, const Trigger&);
/// Adds actions that copy the weights to `state`, one number per weight, at the beginning of step `from`. The caller
/// adds the state to the plan.
void remember_weights(Plan&, const std::string& state, std::int64_t from);
/// Checks the mixing matrix M of an action with Peer::pairs: rank i's new weights are the sum over j of M[i][j] times
/// rank j's weights. Every column must add up to 1; with `rows`, every row, too. Ranks must receive what is sent to
/// them. keeps: the share that a rank keeps; gives(d): the share that each of its d receivers gets. Checks the first
/// steps of up to 64 ranks. Returns a description of the fault; empty: none.
std::string mixing_fault(const Plan&, const Program&, const Action&, double keeps,
                         const std::function<double(int)>& gives, bool rows);
/// The number of pairs in which the rank sends to another rank.
int sends_of(const std::vector<RankPair>&, int rank);
/// The strategy with NormScope::local: batch norm uses each rank's rows.
Strategy apart(Strategy);

}  // namespace trireme
