// OwnPace: the interface between the executor and asynchronous messages: it sends and receives them, and says which
// actions of a step run, and which phase of a server runs next. Channels (parallel/async/channels.h) implements it for
// asynchronous strategies. With other strategies a rank runs all actions of a step.
#pragma once
#include <cstdint>

#include "parallel/comm/arrivals.h"
#include "parallel/plan/plan.h"

namespace trireme {

struct ActionContext;  // parallel/plan/action_context.h

class OwnPace {
 public:
  virtual ~OwnPace() = default;
  /// Begins a step of a rank that no messages start. Returns the loss of a step whose loss is known before it runs:
  /// this rank trains no rows, or its update does not count. Undefined: the step computes the loss.
  virtual Tensor begin_step(std::int64_t step) = 0;
  /// Whether an action runs in this step.
  virtual bool runs(const Action&) const = 0;
  /// Sends the message of an action to a channel.
  virtual Work send(ActionContext&) = 0;
  /// Receives from a channel: starts to wait for a message, or sums the messages that started the phase.
  virtual Work receive(ActionContext&) = 0;
  /// For a rank whose phases messages start: waits until messages start a phase, and returns its index.
  virtual int next() = 0;
  /// The messages to this rank and their order.
  virtual Arrivals& arrivals() = 0;
};

}  // namespace trireme
