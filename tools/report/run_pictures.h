// Pictures of runs: curves, speed and accuracy over ranks, where the time went. Each a card, "" where there is nothing
// to show; those of runs on made-up samples are stamped.
#pragma once
#include "tools/report/page.h"

namespace trireme {

/// A line for each run that has the key.
struct Curve {
  std::string title, y;
  bool log = false;
  std::vector<std::pair<const char*, std::string>> keys;  ///< "train" or "test", and the key there
};

std::string curve_of(const std::vector<RunData>&, const Curve&);
/// Speed over ranks with accuracy beside it, where runs of one model have several numbers of ranks. Without the
/// accuracy (or, of runs that have none, the loss) of each of them there is no picture of their speed, and why.
std::string scaling_over_ranks(const std::vector<RunData>&);
/// Where the time of the traced steps went: a bar per run.
std::string time_budgets(const std::vector<RunData>&);
/// One step of the trace: a line per rank and lane.
std::string step_timeline(const RunData&);

}  // namespace trireme
