// Pictures of a study, each a card; those of made-up data are stamped. "": there is nothing to show.
#pragma once
#include "tools/report/study_data.h"

namespace trireme {

/// The headline: a row per cell with the time to the target of each run, the median, its interval, and how many came
/// there.
std::string time_picture(const StudyData&);
/// Speed-up of the time to the target and of a whole step over ranks, and beside them the accuracy at the same ranks.
std::string scaling_pictures(const StudyData&, bool weak);
/// Held-out accuracy over wall time: medians over seeds at each evaluation.
std::string accuracy_pictures(const StudyData&);
/// Epochs to the target at each global batch.
std::string batch_picture(const StudyData&);
/// "1.4 s", "3.2 min", "never", "–".
std::string seconds_text(double);
/// Ranks, and threads beyond the machine's cores.
std::string ranks_text(const StudyData&, int ranks);

}  // namespace trireme
