// VirtualClock: a rank's clock in simulated time (World::virtual_time). It advances by the modelled durations of the
// rank's computations and messages on a described cluster, not by real time.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/tensor/tensor.h"
#include "parallel/comm/cluster.h"

namespace trireme {

/// The simulated state of a rank between two operations: save() returns it, restore() takes it.
struct VirtualState {
  /// A message to this rank that is in flight, or has arrived and was not received yet. The header of a message to a
  /// channel is a separate Message.
  struct Message {
    std::uint64_t communicator = 0;  ///< 0: the world; else the number that split() gave it
    int receiver = 0,                ///< rank of that communicator
        sender = 0;                  ///< rank of that communicator
    int tag = 0;                     ///< of the message
    Nanoseconds arrival = 0;         ///< time of arrival
    Tensor payload;                  ///< on the host
  };
  /// The sender whose message recv_any takes next.
  struct Turn {
    std::uint64_t communicator = 0;  ///< as in Message
    int receiver = 0,                ///< as in Message
        tag = 0,                     ///< as in Message
        sender = 0;                  ///< as in Message
  };
  Nanoseconds clock = 0,          ///< this rank's time
      link = 0;                   ///< time when its link becomes free
  std::vector<Message> messages;  ///< in sending order for each sender
  std::vector<Turn> turns;        ///< one per receiver and tag
};

/// The simulated clock of one rank. Only the rank's thread uses it.
class VirtualClock {
 public:
  virtual ~VirtualClock() = default;
  virtual Nanoseconds now() const = 0;         ///< this rank's time
  virtual const Cluster& cluster() const = 0;  ///< the simulated machines
  /// Advances the clock by that many nanoseconds. Throws Error below 0.
  virtual void advance(Nanoseconds by) = 0;
  /// Advances the clock to `then`, unless it is already later.
  void advance_to(Nanoseconds then) {
    if (then > now()) advance(then - now());
  }
  /// Sets the duration of this rank's next collective on its link, in place of collective_time().
  virtual void set_price(std::function<Nanoseconds(const Link&)>) = 0;
  /// This rank's state once all ranks have made this call; clocks and links do not change. A collective call of the
  /// world. Throws Error if this rank has receives in progress.
  virtual VirtualState save() = 0;
  /// Restores the state of this rank in a world with the same number of ranks and the same cluster. Clocks may go back.
  /// Earlier messages are lost. Two communicators are the same if they are the n-th split of the same parent. A
  /// collective call of the world; throws Error as save().
  virtual void restore(const VirtualState&) = 0;
};

}  // namespace trireme
