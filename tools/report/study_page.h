// The HTML page of a study: time to accuracy, scaling, curves, the ledger, limits, and the twelve rules.
#pragma once
#include <string>

#include "tools/report/study_data.h"

namespace trireme {

/// A self-contained HTML file, without scripts and external resources.
std::string study_page(const StudyData&);

}  // namespace trireme
