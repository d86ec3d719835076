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
  /// What its functions captured, as text: actions that share rows are of one kind if name and options are equal.
  std::string options = {};
  char letter = '?';      ///< in drawings
  int order = 1000;       ///< position in lists of kinds, ascending; equal numbers: by name and options
  bool is_custom = true;  ///< false: one of the library's kinds, of which its code knows what they do
  /// All ranks along peer.axis do it together.
  bool is_collective = false;
  /// What it reads and writes; null: nothing that others touch.
  std::function<std::vector<Operand>(const Plan&, const Program&, const Liveness&, const Action&)> access = {};
  /// Seconds that it takes on a device of speed 1; null: none.
  std::function<double(const Plan&, const Action&)> seconds = {};
  /// Its calls among the ranks of the axis, one behind the other; null: none. element: bytes of a parameter.
  std::function<std::vector<PlannedCall>(const Action&, int ranks, Index element)> calls = {};
  /// Bytes of the tensors that it makes, at most at once, from start to finish; null: none worth counting. element:
  /// bytes of a parameter.
  std::function<Index(const Action&, int ranks, Index element)> memory = {};
  /// How many elementwise operations on vectors of its slice's size it takes from start to finish, beside its calls, on
  /// the rank that has most of them; null: none worth counting.
  std::function<int(const Action&, int ranks)> vector_ops = {};
  /// What is wrong with an action, in words; null, or an empty text: nothing.
  std::function<std::string(const Plan&, const Program&, ActionId)> fault = {};
  /// Starts the action; a collective or message returns its Work.
  std::function<Work(ActionContext&)> start = {};
  /// Once that Work is done; null: nothing is left to do.
  std::function<void(ActionContext&)> finish = {};
  /// Ends what it has left under way between steps: before weights are looked at, saved or replaced, on all ranks. Its
  /// step is the next one. Null: nothing.
  std::function<void(ActionContext&)> flush = {};
};

/// What a computation takes, in seconds on a device of speed 1: by its kind's row, for passes through the model by the
/// cost of the part.
double seconds_of(const Plan&, const Action&);
/// The calls of a collective action of the plan by its kind's row and its codec, which may send less in later steps.
std::vector<PlannedCall> calls_of(const Plan&, const Action&, int ranks, Index element, std::int64_t step = 0);

}  // namespace trireme
