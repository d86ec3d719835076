// StepMeasurement: measured steps at several numbers of ranks, from a user's table, to compare with simulated steps.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/view.h"
#include "parallel/analysis/chart.h"

namespace trireme {

struct StepMeasurement {
  int ranks = 1;
  double seconds = 0;        ///< of a step
  std::string scaling = {};  ///< weak or strong; empty: not given
  Index batch = 0;           ///< of all ranks; 0: not given
  Evidence evidence = Evidence::real;
};

/// Parses CSV whose first row names the columns, or one JSON object per line. Required: ranks, seconds. Optional:
/// scaling, batch, evidence (real, the default, or emulated). Throws Error of kind data with source and line.
std::vector<StepMeasurement> parse_measurements(std::string_view text, const std::string& source);

}  // namespace trireme
