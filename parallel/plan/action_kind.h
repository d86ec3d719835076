// Kinds of actions.
#pragma once
#include <algorithm>

#include "parallel/plan/action_row.h"

namespace trireme {

inline bool is_reduction(const Action& a) {
  return a.kind == ActionKind::all_reduce || a.kind == ActionKind::reduce_scatter;
}
inline bool is_collective(const Action& a) {
  return a.kind->is_collective && (a.kind != ActionKind::agree || !a.peer.axis.empty());
}
/// Of numbers that are 1 on all ranks or 0: whether gradients are finite, and Plan::flags.
inline bool agrees_on_flags(const Action& a) {
  return a.kind == ActionKind::agree && a.field != "count" && a.field != "loss" && a.field != "norm";
}
/// The first of its flags is that of gradients.
inline bool looks_at_gradients(const Action& a) {
  return agrees_on_flags(a) && (a.field == "finite" || a.field.starts_with("finite+"));
}
inline bool is_message(const Action& a) { return a.kind == ActionKind::send || a.kind == ActionKind::recv; }
/// To or from a channel.
inline bool is_channel(const Action& a) {
  return a.kind == ActionKind::push || a.kind == ActionKind::pull || a.kind == ActionKind::take;
}
/// What push, pull or take names is one number.
inline bool is_number(const Action& a) { return a.field == "loss" || a.field == "clock" || a.field == "ticket"; }
/// What a rank does in steps that are over without it.
inline bool reports_loss(const Action& a) { return a.kind == ActionKind::push && a.field == "loss"; }
/// Of a worker in a plan with tickets: whether the action runs where it trains one, or, closing, where none is left for
/// it: then it reports its loss and gets the weights behind the last update.
inline bool runs_with_ticket(const Action& a, bool closing) {
  const bool pulls_weights = a.kind == ActionKind::pull && a.field == "weights";
  return closing ? reports_loss(a) || pulls_weights : !reports_loss(a);
}
/// How many steps ago the action's micro-batch came in.
inline int steps_back(const Plan& plan, const Action& a) {
  return a.microbatch >= 0 ? 0 : (plan.microbatches - 1 - a.microbatch) / plan.microbatches;
}
/// Which of its step's micro-batches it was, in [0, Plan::microbatches).
inline int place_in_batch(const Plan& plan, const Action& a) {
  return a.microbatch + steps_back(plan, a) * plan.microbatches;
}
/// The most steps that a micro-batch of the program outlives.
inline int most_steps_back(const Plan& plan, const Program& program) {
  int most = 0;
  for (const Action& a : program.actions) most = std::max(most, steps_back(plan, a));
  return most;
}
/// Whether micro-batches outlive their steps, in any program: an asynchronous pipeline.
inline bool is_asynchronous(const Plan& plan) {
  return std::ranges::any_of(plan.programs, [&](const Program& p) { return most_steps_back(plan, p) > 0; });
}
/// A backward that completes weight gradients.
inline bool completes(const Action& a) {
  return a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight;
}
/// Any half of a backward.
inline bool is_backward(const Action& a) { return completes(a) || a.kind == ActionKind::backward_input; }
/// Of the model: forward, loss and backward.
inline bool is_pass(const Action& a) {
  return a.kind == ActionKind::forward || a.kind == ActionKind::loss || is_backward(a);
}

}  // namespace trireme
