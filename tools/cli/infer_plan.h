// trireme infer --plan: available memory, the possible ways, and their predicted costs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "parallel/inference/inference_time.h"
#include "tools/cli/infer_model.h"
#include "tools/training/console.h"

namespace trireme {

/// Bytes for tensors of a rank: as asked for, else a share of the host's free memory. At most half of the process's
/// address space, because the tensors' arena gets no more (kernels/cpu/arena.h).
double memory_of(const InferCommand&, int ranks);

/// Rates for predicted seconds, and the result of a simulation.
struct PlanRates {
  InferenceRates rates;
  std::string text = "assumed rates, not measured";
  std::optional<SimulatedInference> simulated = {};  ///< of way mesh, on the cluster
};
/// The rates that --measure and --cluster ask for. Throws Error as read_cluster() and rates_of() do.
PlanRates rates_for(const InferenceSubject&, const InferCommand&, const std::vector<Axis>& mesh);
/// Sorts by predicted seconds, fastest first. For way mesh these are the simulated seconds plus reading and writing.
void sort_by(std::vector<InferencePlan>&, const PlanRates&);
/// memory: bytes for tensors of a rank.
void print_plans(const InferenceSubject&, const std::vector<InferencePlan>&, double memory, const PlanRates&, Console&);

std::string shape_text(const Extents&, int axes);  ///< "16 x 64 x 64"
std::string seconds_text(double);                  ///< "1.4 s", "3.2 min", "5 h"

}  // namespace trireme
