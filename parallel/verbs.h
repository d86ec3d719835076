// Kinds of actions.
#pragma once
#include "parallel/plan.h"

namespace trireme {

inline bool is_reduction(const Action& a) { return a.verb == Verb::all_reduce || a.verb == Verb::reduce_scatter; }
inline bool is_collective(const Action& a) {
  return is_reduction(a) || a.verb == Verb::all_gather || a.verb == Verb::broadcast || a.verb == Verb::average;
}
inline bool is_message(const Action& a) { return a.verb == Verb::send || a.verb == Verb::recv; }
/// A backward that completes weight gradients.
inline bool completes(const Action& a) { return a.verb == Verb::backward || a.verb == Verb::backward_weight; }
/// Any half of a backward.
inline bool is_backward(const Action& a) { return completes(a) || a.verb == Verb::backward_input; }

}  // namespace trireme
