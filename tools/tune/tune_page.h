// The page of a search: what it has found and what that has cost, parallel coordinates, learning curves, importance.
#pragma once
#include <string>

#include "tools/tune/tune_result.h"

namespace trireme {

/// One HTML file, self-contained: no scripts, nothing loaded.
std::string tune_page(const TuneResult&);

}  // namespace trireme
