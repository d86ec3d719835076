// SimRecord: records simulated ranks as a Simulation: totals by program, and the timeline of the displayed ranks.
#pragma once
#include <utility>
#include <vector>

#include "parallel/analysis/sim_places.h"

namespace trireme {

/// The simulated ranks: all, or if folded the first rank of each program.
struct SimRanks {
  SimRanks(const SimPrograms&, bool folded);
  bool folded;
  std::vector<int> program, world;  ///< of each simulated rank: its program and its world rank
};

class SimRecord {
 public:
  /// All arguments must outlive it.
  SimRecord(const SimPrograms&, const Places&, const SimRanks&);
  /// Adds the time of an action's computation on a rank, and the time in which the rank's link sent its bytes (without
  /// layers' messages).
  void count(int rank, const SimAction&, Nanoseconds computed, Nanoseconds linked);
  /// Adds time in which a rank's computation waited until a call along the axis had ended.
  void stood_still(int rank, int axis, Nanoseconds time, Index bytes);
  /// Records an action's start and end. linked: time before the end in which its link was busy; below 0: no link.
  void span(int rank, ActionId, Nanoseconds started, Nanoseconds ended, Nanoseconds linked);
  void end_step(int rank);  ///< call when all spans of the step are recorded
  Simulation simulation(Nanoseconds end);

 private:
  struct Totals {  // sums of a program
    Nanoseconds busy = 0, ranks = 0;
    std::vector<Nanoseconds> link, still;  // by axis
    std::vector<Index> bytes, still_bytes;
    std::vector<Nanoseconds> called;  // by SimProgram::purposes: time of the link
    std::vector<Index> calls;
  };
  const SimPrograms& plan_;
  const Places& places_;
  const SimRanks& ranks_;
  std::vector<Totals> totals_;
  std::vector<int> row_;  // by rank; -1: not displayed
  std::vector<std::vector<std::pair<Nanoseconds, ActionId>>>
      step_;  // by row: actions of the current step, and their starts
  Simulation result_;
};

}  // namespace trireme
