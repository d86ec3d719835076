// What a simulation stands on: the cluster, where each of its numbers comes from, how far the prediction may be off for
// that, what lies beyond all measurements, and whether ranks have the memory.
#pragma once
#include <string>
#include <vector>

#include "parallel/analysis/chart.h"
#include "parallel/model/memory.h"
#include "tools/cli/described_plan.h"

namespace trireme {

/// That of the settings' file; without one as many machines like this one as the ranks need, a device per core, with
/// links that take no time.
Cluster cluster_of(const TrainerOptions&, int ranks);
/// The same, but that without a file links take what a machine file's calls took, and computations vary as there.
Cluster cluster_of(const TrainerOptions&, const DescribedPlan&, int ranks);
/// "a name: 4 nodes of 8 devices".
std::string in_words(const Cluster&);
/// Throws OptionError where the mesh has more ranks than the cluster devices.
void check_room(const Cluster&, const std::vector<Axis>& mesh);

struct PredictionBasis {
  /// One of the numbers, or several of one kind, that the simulation read.
  struct Number {
    std::string what;  ///< "links between nodes"
    Source source;
    std::string note;  ///< "measured here on one rank"
  };
  std::vector<Number> numbers;
  Source weakest = Source::measured;  ///< of them; what lies beyond the measured is assumed
  double band = 0;                    ///< relative error of predicted times (error_band)
  std::vector<std::string> beyond;    ///< why the prediction is extrapolated; empty: it is not

  Evidence evidence() const { return beyond.empty() ? Evidence::simulated : Evidence::extrapolated; }
  std::string table() const;  ///< a line for each number, and what follows from them
  /// "6.1 ms to 18.4 ms": where the seconds may be in truth.
  std::string range(double seconds) const;
};
/// Of simulations of so many ranks with the costs that the plan has now.
PredictionBasis basis_of(const DescribedPlan&, const Cluster&, int ranks);

/// A line for each program: "stage 0 needs 21.30 GB of 16.00 GB: DOES NOT FIT", the memory being the least that a
/// device of its ranks has; one line where the cluster does not tell any.
std::string memory_verdict(const Cluster&, const Plan&, const std::vector<RankMemory>&);

}  // namespace trireme
