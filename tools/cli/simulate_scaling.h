// trireme plan simulate --sweep: steps over numbers of ranks, in weak scaling (fixed rows per rank) and strong scaling
// (fixed batch over all ranks). Prints tables, and draws charts with the limits of Amdahl and Gustafson, and with
// measurements.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/simulate_basis.h"
#include "tools/cli/simulate_measured.h"

namespace trireme {

/// Efficiency: compute time of these samples on one device, divided among the devices of all ranks by their speed, over
/// the step's seconds. 1: no rank waits, and nothing is computed twice.
double efficiency_of(const DescribedPlan&, const Cluster&, const std::vector<Axis>& mesh, Index samples, double step);
/// Seconds of exposed communication, over all steps, of the program that has most; with its name.
std::pair<double, std::string> most_exposed(const Plan&, const Simulation&);

/// Amdahl's law for a step of fixed batch (Validity of the single processor approach to achieving large scale computing
/// capabilities, AFIPS 1967): serial + divided / ranks.
struct AmdahlLaw {
  double serial = 0,  ///< seconds that do not shrink with more ranks
      divided = 0;    ///< seconds that ranks share, as one rank needs

  double seconds(double ranks) const { return serial + divided / ranks; }
  double serial_share() const { return serial > 0 ? serial / (serial + divided) : 0; }  ///< of one rank's step
};
/// Fits (ranks, seconds) of steps without communication, ascending by ranks. The law goes through the first step. Its
/// serial part is the least that any other step shows (Karp and Flatt, Measuring parallel processor performance, CACM
/// 33, 1990), so no step is faster than the law. A single step shows none.
AmdahlLaw amdahl_of(const std::vector<std::pair<double, double>>& times);
/// Gustafson's scaled speed-up: N + (1 - N) share (Reevaluating Amdahl's law, CACM 31, 1988). share: part of a rank's
/// step that does not grow with its rows. The result is the speed-up over one rank that computes all rows.
double gustafson(double ranks, double share);

/// path: a file (parse_measurements), or a study's directory. From a study, the cells of the settings' strategy and the
/// serial cell are used, as medians over seeds. Throws OptionError for files that cannot be read, for a study of
/// another model, and for a study without such cells.
std::vector<StepMeasurement> read_measurements(const std::string& path, const TrainerOptions&);
/// Runs the command with options.sweep. Returns the exit status. Throws OptionError.
int sweep_ranks(const TrainerOptions&, const PlanOptions&);

}  // namespace trireme
