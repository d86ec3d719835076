// Kinds of actions.
#pragma once
#include "parallel/plan/plan.h"

namespace trireme {

inline bool is_reduction(const Action& a) {
  return a.kind == ActionKind::all_reduce || a.kind == ActionKind::reduce_scatter;
}
inline bool is_collective(const Action& a) {
  return is_reduction(a) || a.kind == ActionKind::all_gather || a.kind == ActionKind::broadcast ||
         a.kind == ActionKind::average || (a.kind == ActionKind::agree && !a.peer.axis.empty());
}
inline bool is_message(const Action& a) { return a.kind == ActionKind::send || a.kind == ActionKind::recv; }
/// A backward that completes weight gradients.
inline bool completes(const Action& a) {
  return a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight;
}
/// Any half of a backward.
inline bool is_backward(const Action& a) { return completes(a) || a.kind == ActionKind::backward_input; }

}  // namespace trireme
