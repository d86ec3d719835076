// Steps that were measured at several numbers of ranks, in a table of one's own, to be put beside simulated ones.
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
  std::string scaling = {};  ///< weak, strong; empty: it is not told
  Index batch = 0;           ///< of all ranks; 0: it is not told
  Evidence evidence = Evidence::real;
};

/// CSV whose first row names the columns, or a JSON object a line: ranks and seconds; where they are told also scaling,
/// batch and evidence (real, which is meant unless given, or emulated). Throws Error of the kind data, with source and
/// line.
std::vector<StepMeasurement> parse_measurements(std::string_view text, const std::string& source);

}  // namespace trireme
