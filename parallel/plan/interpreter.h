// Interpreter: the order in which a rank runs its program. Computations run in list order. Communication starts in list
// order. The actions that name it in Action::after wait for it, and so does the end of the step. The executor runs the
// actions in real or virtual time, the simulator computes when they end, and check() finds whether they end.
#pragma once
#include <span>

#include "parallel/plan/plan.h"

namespace trireme {

/// A position in a program. The type Rank runs the actions and must have these functions:
/// - `int actions()`: the number of actions.
/// - `std::span<const ActionId> after(ActionId)`: the ids in Action::after.
/// - `bool is_inline(ActionId)`: whether later actions start only after this one has ended (a computation).
/// - `bool runs(ActionId)`: whether the action runs in this step; for a server, in the current phase.
/// - `bool start(ActionId)`: starts the action. False: the step ends here.
/// - `bool wait(ActionId)`: true: the action has ended. False: call run() again when it has. A rank may block only here
///   and in next_phase().
/// - `bool serves()`: whether messages start the phases (a server). If so, also:
/// - `int next_phase()`: the phase that arrived messages start; -1: none yet, call run() again after other messages.
/// - `bool ends(int phase)`: whether the step ends after this phase.
template <class Rank>
class Interpreter {
 public:
  /// Continues a step. True: it has ended, and the next call begins another step.
  bool run(Rank& rank) {
    for (;;) {
      if (rank.serves() && phase_ < 0 && (phase_ = rank.next_phase()) < 0) return false;
      if (!run_list(rank, rank.actions())) return false;
      for (; waited_ < rank.actions(); ++waited_)
        if (!rank.wait(waited_)) return false;
      const bool ended = !rank.serves() || rank.ends(phase_);
      *this = {};
      if (ended) return true;
    }
  }
  /// Runs only the actions before `end`, and does not wait for communication that they start. True: it has reached
  /// `end`. False: an action waits; call it again.
  bool run_list(Rank& rank, ActionId end) {
    for (; next_ < end; ++next_, before_ = 0, started_ = false) {
      if (!started_) {
        if (!rank.runs(next_)) continue;
        for (const std::span after = rank.after(next_); before_ < std::ssize(after); ++before_)
          if (!rank.wait(after[static_cast<std::size_t>(before_)])) return false;
        if (!rank.start(next_)) {
          next_ = waited_ = rank.actions();
          before_ = 0;
          return true;
        }
        started_ = true;
      }
      if (rank.is_inline(next_) && !rank.wait(next_)) return false;
    }
    return true;
  }

 private:
  ActionId next_ = 0;     // next action of the list
  int before_ = 0;        // index in the action's `after` of the action that it waits for
  bool started_ = false;  // whether action next_ has started
  ActionId waited_ = 0;   // after the list: all actions before this one have ended
  int phase_ = -1;        // current phase
};

}  // namespace trireme
