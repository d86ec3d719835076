// Interpreter: the one way in which a rank goes through its program, wherever time and messages come from. Computations
// run in list order; what communicates starts in list order, and is waited for by the actions that name it
// (Action::after), or at the end. The executor carries actions out, in real and in virtual time; the simulator only
// reckons when they end.
#pragma once
#include <span>

#include "parallel/plan/plan.h"

namespace trireme {

/// A place in a program. Rank says what its actions do, and is asked for
///   std::span<const ActionId> after(ActionId)   what it names in Action::after
///   bool is_inline(ActionId)   nothing behind it starts before it has ended: it computes
///   bool runs(ActionId)        in this step; of a program that messages start, in the phase under way
///   bool start(ActionId)       false: the step ends here
///   bool wait(ActionId)        true: nothing of it has to be waited for any more; false: run() shall be called again
///                              when that is so. Only here may a rank sleep, for one.
///   int actions()              their number
///   bool serves()              messages start its phases. Then also
///   int next_phase()           the phase that the messages start which have come; -1: they start none, and run() shall
///                              be called again when others have. Here, too, it may sleep.
///   bool ends(int phase)       the step is over behind it
template <class Rank>
class Interpreter {
 public:
  /// Goes on with a step. True: it has ended, and the next call begins another one.
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
  /// Of the list only what lies before `end`, without waiting for what has started. True: it has come there.
  bool run_list(Rank& rank, ActionId end) {
    for (; next_ < end; ++next_, before_ = 0, started_ = false) {
      if (!started_) {
        if (!rank.runs(next_)) continue;
        for (const std::span after = rank.after(next_); before_ < std::ssize(after); ++before_)
          if (!rank.wait(after[static_cast<std::size_t>(before_)])) return false;
        if (!rank.start(next_)) {
          next_ = waited_ = rank.actions(), before_ = 0;
          return true;
        }
        started_ = true;
      }
      if (rank.is_inline(next_) && !rank.wait(next_)) return false;
    }
    return true;
  }

 private:
  ActionId next_ = 0;     // of the list
  int before_ = 0;        // position of what it waits for before it starts
  bool started_ = false;  // it has
  ActionId waited_ = 0;   // behind the list: all before this one has ended
  int phase_ = -1;        // under way
};

}  // namespace trireme
