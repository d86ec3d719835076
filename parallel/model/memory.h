// Memory of a plan, by program and by use, predicted from the costs of its parts.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// The most bytes that a rank of a program holds at a time, by use.
struct RankMemory {
  Index weights = 0;      ///< all versions that are kept, and running statistics
  Index gradients = 0;    ///< including buckets in transit, which are parts of the same block
  Index optimizer = 0;    ///< optimizer state for the weights that the rank updates, and Plan::state
  Index activations = 0;  ///< of micro-batches in flight, with their gradients, and the working memory of passes and
                          ///< mixing
  Index halos = 0;        ///< halos received from neighbours of a divided image
  Index packed = 0;       ///< copies for messages: statistics, encoded gradients, messages that a server takes together
  Index offloaded = 0;    ///< activations in host memory (RecomputeOptions::offload), not in total()
  /// The sum of all fields except offloaded: bytes on the device.
  Index total() const { return weights + gradients + optimizer + activations + halos + packed; }
};

inline constexpr Index host_page = 4096;  ///< bytes
/// What predict_memory() needs in addition to the plan.
struct MemoryOptions {
  Index element = 4;  ///< bytes of a parameter
  int states = 1;     ///< optimizer state, in numbers per parameter: sgd with momentum 1, adam 2
  Index page = 1;     ///< page size: memory is returned in multiples of it; on a CPU host_page
};
/// The memory of each program. Exact to the tensor if imagine() (parallel/analysis/imagine.h) has counted the
/// allocations of passes; otherwise counts the tensors that the parts save. Every rank reserves addresses for the whole
/// blocks of weights and gradients, but only memory that its program writes counts: under zero(2) and zero(3) a shard,
/// and buckets that are gathered or in transit. If the lifetime of a message depends on timing, the largest amount
/// counts. Excludes memory that kernels allocate themselves.
std::vector<RankMemory> predict_memory(const Plan&, const MemoryOptions& = {});
/// What a rank of a program holds outside of steps, in bytes. Predicted for a model that the Step initializes
/// (StepOptions::initialize).
struct PhaseMemory {
  Index construction = 0,  ///< weights and running statistics between steps: all that is written before the first step
      evaluation = 0,      ///< the same, with the most weights of other ranks that are gathered at a time
      checkpoint = 0;      ///< copies of what a rank writes at most, if it is written in the background
};
/// The memory of each program outside of steps; without activations.
std::vector<PhaseMemory> predict_phases(const Plan&, const MemoryOptions& = {});
/// A table of them.
std::string phases_table(const Plan&, const std::vector<PhaseMemory>&);
/// A table with one line per program and, below it, one line for each of its ranks that was measured. programs: the
/// program of each rank.
std::string memory_table(const Plan&, const std::vector<RankMemory>& predicted,
                         const std::vector<RankMemory>& measured = {}, const std::vector<int>& programs = {});

}  // namespace trireme
