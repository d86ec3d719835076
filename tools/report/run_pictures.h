// Pictures of runs: curves, scaling, time. Each is a card, or "" if there is nothing to show. Pictures of synthetic
// data are stamped.
#pragma once
#include "tools/report/page.h"

namespace trireme {

/// A chart with one line per run that has the key.
struct Curve {
  std::string title, y;
  bool log = false;
  std::vector<std::pair<const char*, std::string>> keys;  ///< "train" or "test", and a key of that series
};

std::string curve_of(const std::vector<RunData>&, const Curve&);
/// Speed over ranks next to accuracy over ranks, for runs of one model on several numbers of ranks. If the accuracy
/// (or, without classes, the loss) of a run is missing, a card with the reason replaces the picture.
std::string scaling_over_ranks(const std::vector<RunData>&);
/// Time of the traced steps by category: a bar per run.
std::string time_budgets(const std::vector<RunData>&);
/// One traced step: a line per rank and lane.
std::string step_timeline(const RunData&);

}  // namespace trireme
