// Memory that a plan takes, by program and by use, predicted from what its parts cost.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/plan.h"

namespace trireme {

/// Bytes that a rank of a program holds at most.
struct RankMemory {
  Index weights = 0;      ///< in all versions that are kept, and running statistics
  Index gradients = 0;    ///< with the buckets on their way, which are parts of the same block
  Index optimizer = 0;    ///< state, of what the rank updates; and Plan::state
  Index activations = 0;  ///< of micro-batches in flight, with their gradients, and what passes and mixing work with
  Index halos = 0;        ///< of images that are cut: what neighbours sent
  Index packed = 0;       ///< copies on their way: statistics, encoded gradients, messages that a server takes together
  /// The sum of the above.
  Index total() const { return weights + gradients + optimizer + activations + halos + packed; }
};

inline constexpr Index host_page = 4096;  ///< bytes
/// What predict_memory() must know beside the plan.
struct MemoryOptions {
  Index element = 4;  ///< bytes of a parameter
  int states = 1;     ///< numbers of optimizer state per parameter: sgd with momentum 1, adam 2
  Index page = 1;     ///< bytes that memory is given back by, whole multiples of it; on a CPU host_page
};
/// By program, tensor by tensor where imagine() (parallel/analysis/imagine.h) has counted what passes of the parts
/// take, else by what they keep alone. Every rank sets addresses aside for the whole blocks of weights and gradients;
/// counted is what its program writes to: under zero(2, 3) a shard, and what is gathered or on its way. Where it
/// depends on time how long a message is alive, the most is counted. Not in it: what kernels set aside by themselves.
std::vector<RankMemory> predict_memory(const Plan&, const MemoryOptions& = {});
/// A table with one line per program, and under it one for each of its ranks that was measured. programs: by rank.
std::string memory_table(const Plan&, const std::vector<RankMemory>& predicted,
                         const std::vector<RankMemory>& measured = {}, const std::vector<int>& programs = {});

}  // namespace trireme
