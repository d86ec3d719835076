// Recorder: when each action of a rank's role ran in its last step, and the timeline of all ranks together.
#pragma once
#include <utility>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/timeline.h"

namespace trireme {

class Recorder {
 public:
  /// Forgets what it holds; a step of so many actions follows.
  void clear(std::size_t actions) { times_.assign(actions, {0, 0}); }
  void begin(ActionId id);  ///< the first call counts
  void end(ActionId id);    ///< the last call counts
  /// Of all ranks, from the moment the first of them began. role: this rank's. The clock is one host's, so ranks of
  /// several hosts are out of line. A message or collective ends where its rank saw that it had ended. A collective
  /// call.
  Timeline gather(Communicator& world, int role) const;

 private:
  std::vector<std::pair<double, double>> times_;  // seconds of the steady clock; 0: not yet
};

}  // namespace trireme
