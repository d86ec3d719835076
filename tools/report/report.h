// Report: a page that shows runs, one or several side by side.
#pragma once
#include <string>
#include <vector>

#include "tools/report/run_data.h"

namespace trireme {

/// One HTML file, self-contained: no scripts, nothing loaded. Readable on narrow and wide windows.
std::string report_page(const std::vector<RunData>&);

}  // namespace trireme
