// Recorder: records the start and end of each action of a rank's program in its last step, and the rank's peak memory.
// It also gathers the records of all ranks.
#pragma once
#include <utility>
#include <vector>

#include "framework/optim/optimizer.h"
#include "framework/tensor/memory_tracker.h"
#include "parallel/comm/communicator.h"
#include "parallel/model/memory.h"
#include "parallel/runtime/timeline.h"

namespace trireme {

/// The record of one rank's last step.
class Recorder {
 public:
  /// Clears the record before a step. actions: number of actions of the program.
  void clear(std::size_t actions);
  void begin(ActionId id);  ///< records the start of an action; of several calls, the first counts
  void end(ActionId id);    ///< records the end of an action; of several calls, the last counts
  /// Records the resident bytes of the flat buffers. Call it before buffers are released, and at the end of a step.
  /// older: bytes of older weight versions.
  void see(const Parameters&, Index older = 0);
  /// The memory of the tensors that the step makes; the executor counts it with a MemoryScope.
  const MemoryTracker& memory() const { return memory_; }

  /// The times of all ranks, in seconds since the first start. program: index of this rank's program. Each host has a
  /// separate clock, so the times of ranks on different hosts are not aligned. A message or collective ends at the time
  /// at which its rank notices the end. A collective call.
  Timeline gather(Communicator& world, int program) const;
  /// Peak memory of each rank, by rank. A collective call.
  std::vector<RankMemory> gather_memory(Communicator& world, Optimizer&) const;

 private:
  std::vector<std::pair<double, double>> times_;  // by action: start and end, seconds of the steady clock; 0: not yet
  Index weights_ = 0, gradients_ = 0;             // peak bytes
  MemoryTracker memory_;
};

}  // namespace trireme
