// SimRecord: what simulated ranks did, as a Simulation: totals by program, and the timeline of the ranks that it shows.
#pragma once
#include <utility>
#include <vector>

#include "parallel/analysis/sim_places.h"

namespace trireme {

/// The ranks that are simulated: all, or, folded, the first of each program.
struct SimRanks {
  SimRanks(const SimPrograms&, bool folded);
  bool folded;
  std::vector<int> program, world;  ///< of each: its program, and its rank of the world
};

class SimRecord {
 public:
  /// All must outlive it.
  SimRecord(const SimPrograms&, const Places&, const SimRanks&);
  /// An action that a rank has computed for so long, or whose bytes its link was busy with (without what layers send).
  void count(int rank, const SimAction&, Nanoseconds computed, Nanoseconds linked);
  /// Computation of a rank stood still for so long until a call along the axis had ended.
  void stood_still(int rank, int axis, Nanoseconds time, Index bytes);
  /// When it started and ended; its link was busy with it for so long before the end, below 0: it needs none.
  void span(int rank, ActionId, Nanoseconds started, Nanoseconds ended, Nanoseconds linked);
  void end_step(int rank);  ///< all spans of the step are there
  Simulation simulation(Nanoseconds end);

 private:
  struct Totals {  // of a program
    Nanoseconds busy = 0, ranks = 0;
    std::vector<Nanoseconds> link, still;  // by axis
    std::vector<Index> bytes, still_bytes;
  };
  const SimPrograms& plan_;
  const Places& places_;
  const SimRanks& ranks_;
  std::vector<Totals> totals_;
  std::vector<int> row_;  // by rank; -1: none
  std::vector<std::vector<std::pair<Nanoseconds, ActionId>>>
      step_;  // by row: of the step under way, and when they started
  Simulation result_;
};

}  // namespace trireme
