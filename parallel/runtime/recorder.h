// Recorder: when each action of a rank's program ran in its last step, and what memory the rank held at most; both of
// all ranks together.
#pragma once
#include <utility>
#include <vector>

#include "framework/optim/optimizer.h"
#include "framework/tensor/memory_tracker.h"
#include "parallel/comm/communicator.h"
#include "parallel/plan/memory.h"
#include "parallel/plan/timeline.h"

namespace trireme {

class Recorder {
 public:
  /// Forgets what it holds; a step of so many actions follows.
  void clear(std::size_t actions);
  void begin(ActionId id);  ///< the first call counts
  void end(ActionId id);    ///< the last call counts
  /// Counts the resident bytes of the flat buffers: before some are released, and at the step's end. older: of versions
  /// of the weights beside them.
  void see(const Parameters&, Index older = 0);
  /// For the tensors that the step makes.
  const MemoryTracker& memory() const { return memory_; }

  /// Of all ranks, from the moment the first of them began. program: this rank's. The clock is one host's, so ranks of
  /// several hosts are out of line. A message or collective ends where its rank saw that it had ended. A collective
  /// call.
  Timeline gather(Communicator& world, int program) const;
  /// What each rank held at most, by rank. A collective call.
  std::vector<RankMemory> gather_memory(Communicator& world, Optimizer&) const;

 private:
  std::vector<std::pair<double, double>> times_;  // seconds of the steady clock; 0: not yet
  Index weights_ = 0, gradients_ = 0;             // bytes, at most
  MemoryTracker memory_;
};

}  // namespace trireme
