// trireme infer --plan: what memory there is, what ways there are, and what each takes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "parallel/inference/inference_time.h"
#include "tools/cli/infer_model.h"
#include "tools/training/console.h"

namespace trireme {

/// Bytes that tensors of a rank may have: what was asked for, else a share of what is free on its host; and at most
/// half of the addresses that the process may have, of which the memory of tensors gets no more (kernels/cpu/arena.h).
double memory_of(const InferCommand&, int ranks);

/// What seconds are predicted from, and what came of it.
struct PlanRates {
  InferenceRates rates;
  std::string text = "assumed rates, not measured";
  std::optional<SimulatedInference> simulated = {};  ///< of mesh, on the cluster
};
/// Those that --measure and --cluster ask for. Throws Error as read_cluster() and rates_of().
PlanRates rates_for(const InferenceSubject&, const InferCommand&, const std::vector<Axis>& mesh);
/// By seconds, the best first: ranks that have the volume together take what was simulated, and what they read and
/// write.
void sort_by(std::vector<InferencePlan>&, const PlanRates&);
/// memory: bytes of tensors that a rank may have.
void print_plans(const InferenceSubject&, const std::vector<InferencePlan>&, double memory, const PlanRates&, Console&);

std::string shape_text(const Extents&, int axes);  ///< "16 x 64 x 64"

}  // namespace trireme
