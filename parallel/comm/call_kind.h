// CallKind: the operation of a communicator's call.
#pragma once
#include <cstdint>
#include <string>

namespace trireme {

/// The kinds of calls. All are collective except send and recv.
enum class CallKind : std::uint8_t {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  gather,
  scatter,
  broadcast,
  all_to_all,
  barrier,
  split,
  send,
  recv
};

/// A call that is planned, for costs; or several calls of one kind.
struct PlannedCall {
  CallKind kind;           ///< which operation
  std::int64_t bytes = 0;  ///< of all calls: their payload_bytes() (comm/world/traffic.h)
  std::string axis = {};   ///< mesh axis, or several joined by +; empty: of the action
  std::int64_t calls = 1;  ///< number of calls
  std::string move = {};   ///< of layers' calls: "gather", "scatter", "exchange", "halo", "batch norm statistics"
  bool operator==(const PlannedCall&) const = default;  ///< member by member
};

}  // namespace trireme
