// The page of a study: time to accuracy first, then scaling, curves, the ledger, limits, and the twelve rules.
#pragma once
#include <string>

#include "tools/report/study_data.h"

namespace trireme {

/// One HTML file, self-contained: no scripts, nothing loaded.
std::string study_page(const StudyData&);

}  // namespace trireme
