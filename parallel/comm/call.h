// Call: the description of one communicator call. Every transport checks and prints calls in the same way.
#pragma once
#include <algorithm>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "parallel/comm/call_kind.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// The description of one call; equal on all ranks for a collective call. Trivially copyable: it is stored in shared
/// memory.
struct Call {
  CallKind kind = CallKind::barrier;             ///< which operation
  Index count = 0;                               ///< elements of the larger side
  DType type = DType::f32;                       ///< of the elements
  ReduceOp op = ReduceOp::sum;                   ///< how a transport combines elements: never average
  int root = 0;                                  ///< root rank, or the other rank of a message
  int tag = 0;                                   ///< tag of a message
  bool average = false;                          ///< the caller divides the sum by the number of ranks
  std::uint64_t counts_digest = 0;               ///< hash of the block sizes of the forms with counts; 0: even blocks
  bool operator==(const Call&) const = default;  ///< member by member
};

/// The name as in the code: "all_reduce".
std::string_view name_of(CallKind);
/// For messages: "all_reduce of 4096 f32 (sum)".
std::string to_string(const Call&);

/// Checks the operands of a collective (types, counts, ranks) and returns its call. counts empty: equal blocks. A
/// tensor that only the root has is ignored on the other ranks. Throws Error.
Call collective_call(CallKind, const Tensor& out, const Tensor& in, std::span<const Index> counts, int root, ReduceOp,
                     int rank, int size);
/// As above, for send and recv.
Call message_call(CallKind, const Tensor& x, int peer, int tag, int size);

/// Offsets of the blocks of a call, by rank, then the end of the last block. Only reduce_scatter to scatter and
/// all_to_all have several blocks; other kinds have one.
std::vector<Index> block_offsets(const Call& call, std::span<const Index> counts, int size);

/// Gathers the same number of integers from each rank, ordered by rank. A collective call; its kind is all_gather, or
/// another kind that must not be confused with an all_gather.
std::vector<std::int64_t> gather_numbers(Communicator&, std::span<const std::int64_t> mine,
                                         CallKind = CallKind::all_gather);
/// The ranks that pass this color, ordered by key: the members of the communicator that split() returns. A collective
/// call, which start() receives as a split that gathers colors and keys.
std::vector<int> split_members(Communicator&, int color, int key);

/// Error text for rank 0 making call `first` while this rank makes call `other`.
std::string differing_text(const Call& first, int rank, const Call& other);
/// TRIREME_TIMEOUT in seconds; 300 if unset. Throws Error (usage) for a value that is no such number.
std::chrono::duration<double> unscaled_timeout();
/// Longest wait of this thread before it throws: unscaled_timeout() times the factor of scale_timeouts(). Throws as
/// unscaled_timeout().
std::chrono::duration<double> collective_timeout();
/// Sets this thread's timeout factor, at least 1. It is for phases in which other ranks may do work that is slower than
/// a step, for example disk writes.
void scale_timeouts(double factor);
/// This thread's factor. A thread that waits on behalf of another thread copies that thread's factor.
double scale_of_timeouts();
/// Error text of a wait that took too long: "{who} waited 3 s for rank 1: another rank hangs ...". missing: " for rank
/// 1", or other detail. Adds the activities of other ranks, as far as known (FlightRecorder::others).
std::string late_text(std::string_view who, double seconds, std::string_view missing = "");

/// Calls ready() until it returns true. Returns false if that takes longer than `seconds`. Between calls, lets other
/// threads run for a while and then sleeps: until events signals, or, if events is null, up to 0.2 ms.
template <class Ready>
bool poll_until(double seconds, Ready&& ready, EventCount* events = nullptr) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  if (events && events->simulated()) return events->poll(seconds, std::ref(ready));
  auto last = Clock::now();
  Seconds waited(0);  // at most 0.2 s counts between two checks: a longer gap means that the process was stopped
  Seconds pause(20e-6);
  const int yields = events ? events->yields() : 200;
  for (int round = 0;; ++round) {
    const std::uint64_t ticket = events ? events->ticket() : 0;
    if (ready()) return true;
    const auto now = Clock::now();
    waited += std::min<Seconds>(now - last, Seconds(0.2));
    last = now;
    const Seconds left = Seconds(seconds) - waited;
    if (left.count() <= 0) return false;
    if (round < yields) {
      std::this_thread::yield();
    } else if (events) {
      events->sleep(ticket, std::min(left.count(), 0.05));
    } else {
      std::this_thread::sleep_for(std::min(left, pause));
      pause = std::min(Seconds(200e-6), pause * 1.25);
    }
  }
}

}  // namespace trireme
