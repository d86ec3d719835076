// ActionRow: everything that is known about one kind of action. The library's kinds have their rows in action_row.cpp.
// A strategy with a custom kind writes a row and names it in its actions. The row is a constant, or the actions share
// it; its functions may then be lambdas that capture the options of the strategy:
//
//   const ActionRow halve = {.name = "halve", .access = ..., .start = ...};
//   plan.programs[0].actions.push_back({.kind = halve, .slice = ...});
//   plan.programs[0].actions.push_back({.kind = std::make_shared<const ActionRow>(...), .slice = ...});
//
// parallel/strategies/custom.h makes rows from a few declarations.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/call.h"
#include "parallel/plan/operands.h"

namespace trireme {

struct ActionContext;  // parallel/plan/action_context.h

struct ActionRow {
  std::string name = {};  ///< in texts: lower case, words joined by _
  /// What its functions captured, as text. Two rows that actions own are one kind if name and options are equal.
  std::string options = {};
  char letter = '?';      ///< in drawings
  int order = 1000;       ///< position in lists of kinds, ascending; equal numbers: by name and options
  bool is_custom = true;  ///< false: a kind of the library, which parts of the library treat by its kind
  /// Whether all ranks along peer.axis take part.
  bool is_collective = false;
  /// The operands that it reads and writes; null: none that other actions access.
  std::function<std::vector<Operand>(const Plan&, const Program&, const Liveness&, const Action&)> access = {};
  /// Seconds that it takes on a device of speed 1; null: none.
  std::function<double(const Plan&, const Action&)> seconds = {};
  /// Its calls among the ranks of the axis, in order; null: none. element: bytes of a parameter.
  std::function<std::vector<PlannedCall>(const Action&, int ranks, Index element)> calls = {};
  /// The most bytes of tensors that it allocates and holds at once, from start to finish; null: too few to count.
  /// element: bytes of a parameter.
  std::function<Index(const Action&, int ranks, Index element)> memory = {};
  /// Number of elementwise operations on vectors of its slice's size, in addition to its calls, on the rank that has
  /// most of them; null: too few to count.
  std::function<int(const Action&, int ranks)> vector_ops = {};
  /// The fault of an action, as a text for check(); null, or an empty text: none.
  std::function<std::string(const Plan&, const Program&, ActionId)> fault = {};
  /// Starts the action; a collective or message returns its Work.
  std::function<Work(ActionContext&)> start = {};
  /// Runs once this Work is done; null: nothing is left to do.
  std::function<void(ActionContext&)> finish = {};
  /// Finishes operations that it leaves in progress between steps. Runs on all ranks before weights are read, saved or
  /// replaced; ActionContext::step is the next step. Null: it leaves none.
  std::function<void(ActionContext&)> flush = {};
};

/// Seconds of a computation on a device of speed 1, from its kind's row; for passes, from the cost of the part.
double seconds_of(const Plan&, const Action&);
/// The calls of a collective action, from its kind's row and its codec, which may send less in later steps.
std::vector<PlannedCall> calls_of(const Plan&, const Action&, int ranks, Index element, std::int64_t step = 0);

}  // namespace trireme
