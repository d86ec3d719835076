// Pictures of a study. Each is a card, or "" if there is nothing to show. Pictures of synthetic data are stamped.
#pragma once
#include "tools/report/study_data.h"

namespace trireme {

/// The headline: a row per cell with each run's time to the target, the median, its interval, and the number of runs
/// that reached the target.
std::string time_picture(const StudyData&);
/// Speed-ups of the time to the target and of a whole step over ranks, next to the accuracy at the same ranks.
std::string scaling_pictures(const StudyData&, bool weak);
/// Held-out accuracy over wall time: medians over seeds at each evaluation.
std::string accuracy_pictures(const StudyData&);
/// Epochs to the target at each global batch.
std::string batch_picture(const StudyData&);
/// "1.4 s", "3.2 min", "never" for infinity, "–" for NaN.
std::string seconds_text(double);
/// Ranks, and threads beyond the machine's cores.
std::string ranks_text(const StudyData&, int ranks);

}  // namespace trireme
