// PredictionBasis: the sources of a simulation's numbers, the resulting error band, extrapolations, and whether ranks
// fit the memory.
#pragma once
#include <string>
#include <vector>

#include "parallel/analysis/chart.h"
#include "parallel/model/memory.h"
#include "tools/cli/described_plan.h"

namespace trireme {

/// The cluster of the settings' file. Without a file: as many machines like this one as the ranks need, one device per
/// core, with links that take no time.
Cluster cluster_of(const TrainerOptions&, int ranks);
/// The same; but without a cluster file, links and jitter are those of a machine file.
Cluster cluster_of(const TrainerOptions&, const DescribedPlan&, int ranks);
/// "a name: 4 nodes of 8 devices".
std::string in_words(const Cluster&);
/// Throws OptionError if the mesh has more ranks than the cluster has devices.
void check_room(const Cluster&, const std::vector<Axis>& mesh);

struct PredictionBasis {
  /// One or several numbers that the simulation used, with their source.
  struct Number {
    std::string what;  ///< "links between nodes"
    Source source;
    std::string note;  ///< "measured here on one rank"
  };
  std::vector<Number> numbers;
  Source weakest = Source::measured;  ///< of all numbers; extrapolated numbers count as assumed
  double band = 0;                    ///< relative error of predicted times above (error_band)
  double below = 0;                   ///< the same below
  std::string busy = {};              ///< busy_in_words() of the machine file
  double jitter = 0, heldout = 0;     ///< measured, which the band holds at least
  std::vector<std::string> beyond;    ///< reasons why the prediction is extrapolated; empty: it is not

  Evidence evidence() const { return beyond.empty() ? Evidence::simulated : Evidence::extrapolated; }
  std::string table() const;  ///< a line per number, then the conclusion
  /// "6.1 ms to 18.4 ms": the seconds with their error band.
  std::string range(double seconds) const;
};
/// Basis of simulations of that many ranks with the plan's current costs.
PredictionBasis basis_of(const DescribedPlan&, const Cluster&, int ranks);

/// A line per program: "stage 0 needs 21.30 GB of 16.00 GB: DOES NOT FIT". The memory is the minimum over the devices
/// of its ranks. One line if the cluster file gives no memory.
std::string memory_verdict(const Cluster&, const Plan&, const std::vector<RankMemory>&);

}  // namespace trireme
