// Mixing: functions for strategies whose ranks train separately and average weights or gradients over an axis in some
// steps (local SGD, gossip).
#pragma once
#include "parallel/plan/action_context.h"
#include "parallel/strategies/custom.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {

/// The mean of the slice's weights, or gradients, over the ranks of the axis, each counting as many times as it had
/// rows in the step. The caller sets the steps.
CustomAction mean_by_rows(OperandKind of, const std::string& axis);

/// ActionRow::memory of an action that makes so many vectors of its slice's size.
template <Index vectors>
Index memory_of_slices(const Action& a, int, Index element) {
  return vectors * a.slice.size() * element;
}

/// ActionRow::vector_ops of an action that takes so many.
template <int count>
int vector_ops(const Action&, int) {
  return count;
}

/// Whether ranks along the axis may train for themselves: nothing makes their weights alike yet. Throws Error if not.
void check_apart(const Plan&, const std::string& axis, const std::string& strategy);
/// An action like that one on each slice of weights that a program updates, over the axis, in steps of the trigger,
/// behind all else that writes weights.
void mix_weights(Plan&, const Action& like, const std::string& axis, const std::string& phase, const Trigger&);
/// Gives `state`, one number per weight, the values of the weights as step `from` begins. The caller adds it to the
/// plan.
void remember_weights(Plan&, const std::string& state, std::int64_t from);
/// Of an action that mixes what ranks have by Peer::pairs, what is wrong with its matrix, in which [i][j] is the share
/// of rank j's that rank i gets; empty: nothing. Every column adds up to 1; rows: each row, too. Ranks receive what is
/// sent to them. keeps: what a rank keeps of its own; gives(d): what each of d receivers gets of it. Looks at the first
/// steps of up to 64 ranks.
std::string mixing_fault(const Plan&, const Program&, const Action&, double keeps,
                         const std::function<double(int)>& gives, bool rows);
/// How many of these exchanges send something.
int sends_of(const std::vector<RankPair>&, int rank);
/// The strategy, with batch norm's statistics those of each rank's rows.
Strategy apart(Strategy);

}  // namespace trireme
