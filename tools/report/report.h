// Report: an HTML page about one run, or about several runs side by side.
#pragma once
#include <string>
#include <vector>

#include "tools/report/run_data.h"

namespace trireme {

/// A self-contained HTML file, without scripts and external resources. Readable in narrow and wide windows.
std::string report_page(const std::vector<RunData>&);

}  // namespace trireme
