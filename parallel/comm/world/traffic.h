// Traffic: bytes and calls of communicators by mesh axis, counted call by call by a TrafficMeter, which every Mesh has.
// A dry meter records calls without making them, so that a program's communication can be listed without other ranks.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/communicator.h"

namespace trireme {

/// The bytes that a plan and a TrafficMeter count for a call. A collective: the bytes of its vector, on every rank; for
/// gathers and scatters, of the longer vector. The algorithm of the collective does not matter. A message: its bytes at
/// the sender; recv: 0.
Index payload_bytes(const Call&);

/// A number of calls, and their bytes.
struct TrafficCount {
  Index calls = 0,  ///< without recv
      bytes = 0;    ///< sum of payload_bytes()
  /// Adds calls and bytes.
  TrafficCount& operator+=(const TrafficCount& o) {
    calls += o.calls;
    bytes += o.bytes;
    return *this;
  }
  bool operator==(const TrafficCount&) const = default;  ///< member by member
};
/// Counts by mesh axis, or by several joined by +, as named in Mesh::comm(). Axes without calls may be missing.
using Traffic = std::map<std::string, TrafficCount>;
/// b - a, without axes whose difference has no calls.
Traffic difference(const Traffic& b, const Traffic& a);

/// Counts the calls of one rank's communicators, which may outlive it. One thread at a time may use a meter and its
/// communicators.
class TrafficMeter {
 public:
  /// Called with the axis and description of each call.
  using Listener = std::function<void(const std::string& axis, const Call&)>;
  /// A communicator that counts its calls under this axis; communicators split from it do the same.
  std::unique_ptr<Communicator> metered(std::unique_ptr<Communicator> inner, const std::string& axis) const;
  /// Counts since construction.
  const Traffic& counted() const { return state_->counted; }
  /// While it lives, calls are not counted: for calls outside steps.
  class Pause;
  /// While it lives, calls go to the listener and are not made. all_gather returns copies of this rank's block; other
  /// results are not written.
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

/// Base of Pause and Dry: restores the earlier state of the meter. Scopes nest.
class TrafficMeter::Scope {
 public:
  ~Scope() {
    state_->paused = paused_;
    state_->dry = dry_;
  }
  Scope(const Scope&) = delete;

 protected:
  /// Stores the meter's state.
  explicit Scope(const TrafficMeter& meter) : state_(meter.state_), paused_(state_->paused), dry_(state_->dry) {}
  const std::shared_ptr<State> state_;  ///< of the meter

 private:
  const bool paused_;
  const std::shared_ptr<const Listener> dry_;
};

/// While it lives, the meter does not count calls.
class TrafficMeter::Pause : Scope {
 public:
  /// Pauses this meter.
  explicit Pause(const TrafficMeter& meter) : Scope(meter) { state_->paused = true; }
};
/// While it lives, the meter passes calls to a listener and does not make them.
class TrafficMeter::Dry : Scope {
 public:
  /// told: gets each call.
  Dry(const TrafficMeter& meter, Listener told) : Scope(meter) {
    state_->dry = std::make_shared<const Listener>(std::move(told));
  }
};

/// The communicator of an imagined rank: with size 2 or more, calls throw Error unless a dry meter takes them. Splits
/// keep rank and size, as if all ranks passed the same color.
std::unique_ptr<Communicator> imagined_communicator(int rank, int size);

}  // namespace trireme
