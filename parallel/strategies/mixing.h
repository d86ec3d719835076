// Mixing: what strategies share whose ranks train for themselves and meet now and then: kinds of actions that average
// weights or gradients over an axis, and where in a plan they stand.
#pragma once
#include "parallel/plan/action_context.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {

namespace action_rows {
/// The mean of the slice's weights, or gradients (Action::field), over the ranks of the axis, each counting as many
/// times as it had rows in the step.
extern const ActionRow mean;
}  // namespace action_rows

/// Whether ranks along the axis may train for themselves: nothing makes their weights alike yet. Throws Error if not.
void check_apart(const Plan&, const std::string& axis, const std::string& strategy);
/// An action like that one on each slice of weights that a program updates, over the axis, in steps of the trigger,
/// behind all else that writes weights.
void mix_weights(Plan&, const Action& like, const std::string& axis, const std::string& phase, const Trigger&);
/// Adds `state`, one number per weight, which has the weights' values as step `from` begins.
void remember_weights(Plan&, const std::string& state, std::int64_t from,
                      State::Extent = State::Extent::replicated);
/// By Peer::pairs of an action, what each of `ranks` ranks has behind a step is a mix of what all had: the entry
/// [i][j] of the matrix is the share of rank j's that rank i has. keeps: the share that a rank keeps of its own;
/// gives(d): the share of its own that each of the d ranks gets to which it sends.
std::vector<std::vector<double>> mixing_matrix(const Peer&, int ranks, std::int64_t step, double keeps,
                                               const std::function<double(int)>& gives);
/// Looks at the matrices of the first steps (and of as many ranks as the axis has, up to 64): in words, by which rank's
/// row or column does not add up to 1; empty: all do. rows: whether rows must, too.
std::string stochastic_fault(const Plan&, const Program&, const Action&, double keeps,
                             const std::function<double(int)>& gives, bool rows);
/// The strategy, with batch norm's statistics those of each rank's rows.
Strategy apart(Strategy);

}  // namespace trireme
