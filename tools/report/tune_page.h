// The HTML page of a search: the best trials and their cost, parallel coordinates, learning curves, importance.
#pragma once
#include <string>

#include "tools/study/tune_result.h"

namespace trireme {

/// A self-contained HTML file, without scripts and external resources.
std::string tune_page(const TuneResult&);

}  // namespace trireme
