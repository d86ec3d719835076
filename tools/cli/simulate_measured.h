// Steps that were measured at several numbers of ranks, to be put beside simulated ones: a table of one's own, or a
// study that `trireme scaling` has made.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "parallel/analysis/chart.h"
#include "tools/training/trainer_options.h"

namespace trireme {

struct StepMeasurement {
  int ranks = 1;
  double seconds = 0;        ///< of a step
  std::string scaling = {};  ///< weak, strong; empty: it is not told
  Index batch = 0;           ///< of all ranks; 0: it is not told
  Evidence evidence = Evidence::real;
};

/// path: a study's directory, of whose cells those of the settings' strategy count and the serial one, medians over
/// seeds; or a file. Throws OptionError, one line, for what cannot be read, for a study of another model and one
/// without such cells.
std::vector<StepMeasurement> read_measurements(const std::string& path, const TrainerOptions&);
/// CSV whose first row names the columns, or a JSON object a line: ranks and seconds; where they are told also scaling,
/// batch and evidence (real, which is meant unless given, or emulated). Throws OptionError with source and line.
std::vector<StepMeasurement> parse_measurements(std::string_view text, const std::string& source);

}  // namespace trireme
