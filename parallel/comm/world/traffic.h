// Traffic: bytes and calls of communicators by mesh axis, counted call by call by a TrafficMeter, which every Mesh has.
// A dry meter takes note of the calls and makes none, so that a program can be run for its communication alone.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/communicator.h"

namespace trireme {

/// The bytes that a call counts, in a plan and in a communicator: its vector's (the larger side of gathers and
/// scatters), once, on every rank that makes the call, whatever an algorithm moves; a message's at its sender (recv:
/// 0).
Index payload_bytes(const Call&);

/// Calls, recv left out, and their payload_bytes().
struct TrafficCount {
  Index calls = 0, bytes = 0;
  TrafficCount& operator+=(const TrafficCount& o) { return calls += o.calls, bytes += o.bytes, *this; }
  bool operator==(const TrafficCount&) const = default;  ///< member by member
};
/// By mesh axis, or several joined by + as Mesh::comm() was asked for them. Axes without calls may be left out.
using Traffic = std::map<std::string, TrafficCount>;
/// What b counts beyond a; axes without calls are left out.
Traffic difference(const Traffic& b, const Traffic& a);

/// Counts the calls of one rank's communicators, which may outlive it. Like these it belongs to one thread at a time.
class TrafficMeter {
 public:
  using Listener = std::function<void(const std::string& axis, const Call&)>;
  /// A communicator that counts under this axis, as do all that are split from it.
  std::unique_ptr<Communicator> metered(std::unique_ptr<Communicator> inner, const std::string& axis) const;
  /// Since the meter was made.
  const Traffic& counted() const { return state_->counted; }
  /// While it lives, calls are not counted: what belongs to no step.
  class Pause;
  /// While it lives, calls are told to the listener instead of made. all_gather returns copies of this rank's block;
  /// other results stay as they are.
  class Dry;

 private:
  class Metered;
  class Scope;
  struct State {
    Traffic counted;
    bool paused = false;
    std::shared_ptr<const Listener> dry;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Restores what was: scopes nest.
class TrafficMeter::Scope {
 public:
  ~Scope() { state_->paused = paused_, state_->dry = dry_; }
  Scope(const Scope&) = delete;

 protected:
  explicit Scope(const TrafficMeter& meter) : state_(meter.state_), paused_(state_->paused), dry_(state_->dry) {}
  const std::shared_ptr<State> state_;

 private:
  const bool paused_;
  const std::shared_ptr<const Listener> dry_;
};

class TrafficMeter::Pause : Scope {
 public:
  explicit Pause(const TrafficMeter& meter) : Scope(meter) { state_->paused = true; }
};
class TrafficMeter::Dry : Scope {
 public:
  Dry(const TrafficMeter& meter, Listener told) : Scope(meter) {
    state_->dry = std::make_shared<const Listener>(std::move(told));
  }
};

/// One rank that is only imagined: calls of size 2 and more throw Error unless a dry meter takes them. Splits keep rank
/// and size, as if all ranks asked for one color.
std::unique_ptr<Communicator> imagined_communicator(int rank, int size);

}  // namespace trireme
