// Kinds of actions.
#pragma once
#include "parallel/plan/plan.h"

namespace trireme {

inline bool is_reduction(const Action& a) {
  return a.verb == ActionKind::all_reduce || a.verb == ActionKind::reduce_scatter;
}
inline bool is_collective(const Action& a) {
  return is_reduction(a) || a.verb == ActionKind::all_gather || a.verb == ActionKind::broadcast ||
         a.verb == ActionKind::average;
}
inline bool is_message(const Action& a) { return a.verb == ActionKind::send || a.verb == ActionKind::recv; }
/// A backward that completes weight gradients.
inline bool completes(const Action& a) {
  return a.verb == ActionKind::backward || a.verb == ActionKind::backward_weight;
}
/// Any half of a backward.
inline bool is_backward(const Action& a) { return completes(a) || a.verb == ActionKind::backward_input; }

}  // namespace trireme
