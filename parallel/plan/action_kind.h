// Kinds of actions.
#pragma once
#include <algorithm>

#include "parallel/plan/action_row.h"

namespace trireme {

/// Whether the action is of a custom kind, not one of the library's.
inline bool is_custom(const Action& a) { return a.kind->is_custom; }
/// Whether the action averages running statistics.
inline bool averages_statistics(const Action& a) {
  return a.kind == ActionKind::all_reduce && a.payload == OperandKind::statistics;
}
/// Whether the action sums gradients of tied weights over the programs that have copies (parallel/plan/ties.h).
inline bool is_tied_sum(const Action& a) { return a.kind == ActionKind::all_reduce && !a.peer.members.empty(); }
/// Whether the action sums shards of gradients, which a reduce_scatter has made, over the replicas of the shards.
inline bool is_replica_sum(const Action& a) { return !a.shard_axis.empty(); }
/// Whether the action reduces gradients over the ranks that have different rows. Those of replicas are left to sums
/// over replicas.
inline bool is_reduction(const Action& a) {
  return (a.kind == ActionKind::all_reduce || a.kind == ActionKind::reduce_scatter) &&
         a.payload == OperandKind::gradients && a.peer.members.empty() && !is_replica_sum(a);
}
/// Whether the action sums gradients of ranks that have different rows: by itself, or at the rank of a channel.
inline bool sums_gradients(const Action& a) {
  return is_reduction(a) || (!a.peer.channel.empty() && a.payload == OperandKind::gradients);
}
/// Whether all ranks along the action's axis carry it out together.
inline bool is_collective(const Action& a) {
  return a.kind->is_collective && (a.kind != ActionKind::agree || !a.peer.axis.empty());
}
/// Whether the action agrees on flags: whether gradients are finite, and Plan::flags.
inline bool agrees_on_flags(const Action& a) { return a.kind == ActionKind::agree && a.payload == OperandKind::flags; }
/// Whether the action agrees on whether all gradients are finite.
inline bool looks_at_gradients(const Action& a) {
  return agrees_on_flags(a) && std::ranges::find(a.names, finite_gradients) != a.names.end();
}
/// Whether the action is a message between pipeline stages.
inline bool is_message(const Action& a) {
  return (a.kind == ActionKind::send || a.kind == ActionKind::recv) && a.peer.channel.empty();
}
/// Whether the action is a message to or from a channel (parallel/async/channel_plan.h).
inline bool is_channel(const Action& a) {
  return (a.kind == ActionKind::send || a.kind == ActionKind::recv) && !a.peer.channel.empty();
}
/// The largest number of steps for which a micro-batch of the program stays in flight.
inline int most_steps_back(const Program& program) {
  int most = 0;
  for (const Action& a : program.actions) most = std::max(most, a.microbatch.steps_ago);
  return most;
}
/// Whether micro-batches of any program stay in flight after their step: an asynchronous pipeline.
inline bool is_asynchronous(const Plan& plan) {
  return std::ranges::any_of(plan.programs, [](const Program& p) { return most_steps_back(p) > 0; });
}
/// Whether the action frees all but this rank's shard of a slice of weights, or of gradients.
inline bool drops(const Action& a, OperandKind payload) { return a.kind == ActionKind::drop && a.payload == payload; }
/// Whether the action is a backward that completes weight gradients.
inline bool completes(const Action& a) {
  return a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight;
}
/// Whether the action is a backward or one of its halves.
inline bool is_backward(const Action& a) { return completes(a) || a.kind == ActionKind::backward_input; }
/// Whether the action runs the model: forward, loss or backward.
inline bool is_pass(const Action& a) {
  return a.kind == ActionKind::forward || a.kind == ActionKind::loss || is_backward(a);
}

}  // namespace trireme
