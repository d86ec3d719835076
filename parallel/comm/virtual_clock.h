// VirtualClock: a rank's clock where time is simulated (World::virtual_time): it stands still but for what computations
// and waits are said to take on the cluster.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/tensor/tensor.h"
#include "parallel/comm/cluster.h"

namespace trireme {

/// What virtual time knows of a rank between two operations: save() returns it, restore() takes it.
struct VirtualState {
  /// On its way to this rank, or there and not taken yet. The header of a message to a channel is one of its own.
  struct Message {
    std::uint64_t communicator = 0;  ///< 0: of the world; else as split() numbered it
    int receiver = 0, sender = 0;    ///< ranks of that communicator
    int tag = 0;
    Nanoseconds arrival = 0;
    Tensor payload;
  };
  /// Whose message recv_any takes next.
  struct Turn {
    std::uint64_t communicator = 0;
    int receiver = 0, tag = 0, sender = 0;
  };
  Nanoseconds clock = 0, link = 0;  ///< link: when what it carries has left it
  std::vector<Message> messages;    ///< each sender's in the order in which they were sent
  std::vector<Turn> turns;
};

/// Of one rank, used by its thread alone.
class VirtualClock {
 public:
  virtual ~VirtualClock() = default;
  virtual Nanoseconds now() const = 0;
  virtual const Cluster& cluster() const = 0;
  /// Lets so many nanoseconds pass. Throws Error for fewer than 0.
  virtual void advance(Nanoseconds by) = 0;
  /// Until then, if it is not later already.
  void advance_to(Nanoseconds then) {
    if (then > now()) advance(then - now());
  }
  /// What this rank's next collective takes on its link, in the place of collective_time.
  virtual void set_price(std::function<Nanoseconds(const Link&)>) = 0;
  /// This rank's state when it and all others have made this call, which leaves their clocks and links alone. A
  /// collective call of the world. Throws Error where this rank has receives under way.
  virtual VirtualState save() = 0;
  /// Makes the state of each rank, in a world of as many on the same cluster, what it was. Clocks may go back. What was
  /// sent before is lost. Communicators count as the same that were split from the same one as the so manieth. A
  /// collective call of the world; throws Error as save().
  virtual void restore(const VirtualState&) = 0;
};

}  // namespace trireme
