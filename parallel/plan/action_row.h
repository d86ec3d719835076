// ActionRow: all that is known of one kind of actions. The library's kinds have theirs in action_row.cpp; a program
// that brings a kind of its own writes a row (a constant) and names it in the actions of its strategy:
//
//   const ActionRow halve = {.name = "halve", .access = ..., .start = ...};
//   plan.programs[0].actions.push_back({.kind = halve, .slice = ...});
#pragma once
#include <string>
#include <string_view>

#include "parallel/comm/call.h"
#include "parallel/plan/operands.h"

namespace trireme {

struct ActionContext;  // parallel/plan/action_context.h

/// A communicator call that an action makes, for costs.
struct PlannedCall {
  CallKind kind;  ///< which operation
  Index bytes;    ///< size of the whole vector
};

struct ActionRow {
  std::string_view name;  ///< in texts: lower case, words joined by _
  char letter = '?';      ///< in drawings
  int order = 1000;       ///< of the library's kinds, in lists
  /// All ranks along peer.axis do it together.
  bool is_collective = false;
  /// What it reads and writes; null: nothing that others touch.
  Access (*access)(const Plan&, const Program&, const Liveness&, const Action&) = nullptr;
  /// Seconds that it takes on a device of speed 1; null: none.
  double (*seconds)(const Plan&, const Action&) = nullptr;
  /// Its calls among the ranks of the axis, one behind the other; null: none. element: bytes of a parameter.
  std::vector<PlannedCall> (*calls)(const Action&, int ranks, Index element) = nullptr;
  /// Bytes of the tensors that it makes, at most at once, from start to finish; null: none worth counting. element:
  /// bytes of a parameter.
  Index (*memory)(const Action&, int ranks, Index element) = nullptr;
  /// How many elementwise operations on vectors of its slice's size it takes from start to finish, beside its calls, on
  /// the rank that has most of them; null: none worth counting.
  int (*vector_ops)(const Action&, int ranks) = nullptr;
  /// What is wrong with an action, in words; null, or an empty text: nothing.
  std::string (*fault)(const Plan&, const Program&, ActionId) = nullptr;
  /// Starts the action; a collective or message returns its Work.
  Work (*start)(ActionContext&) = nullptr;
  /// Once that Work is done; null: nothing is left to do.
  void (*finish)(ActionContext&) = nullptr;
  /// Ends what it has left under way between steps: before weights are looked at, saved or replaced, on all ranks. Its
  /// step is the next one. Null: nothing.
  void (*flush)(ActionContext&) = nullptr;
};

/// What a computation takes, in seconds on a device of speed 1: by its kind's row, for passes through the model by the
/// cost of the part.
double seconds_of(const Plan&, const Action&);
/// The calls of a collective action of the plan by its kind's row and its codec, which may send less in later steps.
std::vector<PlannedCall> calls_of(const Plan&, const Action&, int ranks, Index element, std::int64_t step = 0);

}  // namespace trireme
