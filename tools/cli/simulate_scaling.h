// trireme simulate --sweep: steps over numbers of ranks, in weak scaling (each rank takes as many rows, whatever their
// number) and strong scaling (a batch is shared by all ranks): tables, and charts beside what the laws of Amdahl and
// Gustafson allow, and beside what was measured.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/simulate_basis.h"
#include "tools/cli/simulate_measured.h"

namespace trireme {

/// What a device would compute for these samples if it were alone, shared out among the devices of all ranks by their
/// speed, over the step's seconds: 1 where nobody waits and nothing is computed twice.
double efficiency_of(const DescribedPlan&, const Cluster&, const std::vector<Axis>& mesh, Index samples, double step);
/// Of all steps: the seconds of exposed communication of the program that has most, with its name.
std::pair<double, std::string> most_exposed(const Plan&, const Simulation&);

/// A step of a fixed batch as Amdahl sees it (Validity of the single processor approach to achieving large scale
/// computing capabilities, AFIPS 1967): serial + divided / ranks.
struct AmdahlLaw {
  double serial = 0,  ///< seconds that no number of ranks makes shorter
      divided = 0;    ///< seconds that ranks share, all on one rank

  double seconds(double ranks) const { return serial + divided / ranks; }
  double serial_share() const { return serial > 0 ? serial / (serial + divided) : 0; }  ///< of one rank's step
};
/// Of (ranks, seconds) of steps without communication, in the order of their ranks: through the first of them, with the
/// least serial part that another one shows beside it (Karp and Flatt, Measuring parallel processor performance, CACM
/// 33, 1990), so that none of them is faster than the law. One alone shows none.
AmdahlLaw amdahl_of(const std::vector<std::pair<double, double>>& times);
/// How many times as fast so many ranks are, at most, as one that takes all of their rows, where of a rank's step this
/// share does not grow with its rows: N + (1 - N) share (Gustafson, Reevaluating Amdahl's law, CACM 31, 1988).
double gustafson(double ranks, double share);

/// path: a file (parse_measurements), or a study's directory, of whose cells those of the settings' strategy count and
/// the serial one, medians over seeds. Throws OptionError, one line, for what cannot be read, for a study of another
/// model and one without such cells.
std::vector<StepMeasurement> read_measurements(const std::string& path, const TrainerOptions&);
/// The command with options.sweep. Returns the exit status; throws OptionError.
int sweep_ranks(const TrainerOptions&, const PlanOptions&);

}  // namespace trireme
