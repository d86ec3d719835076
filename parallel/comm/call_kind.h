// CallKind: what a call of a communicator does.
#pragma once
#include <cstdint>

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

/// A call that is planned, for costs.
struct PlannedCall {
  CallKind kind;       ///< which operation
  std::int64_t bytes;  ///< size of the whole vector
};

}  // namespace trireme
