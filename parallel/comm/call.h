// Call: the description of one call of a communicator, checked and put into words the same way on every transport.
#pragma once
#include <algorithm>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "parallel/comm/call_kind.h"
#include "parallel/comm/communicator.h"

namespace trireme {

/// All ranks' descriptions of one collective call are equal. Trivially copyable: it lies in shared memory.
struct Call {
  CallKind kind = CallKind::barrier;
  Index count = 0;  ///< elements of the larger side
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;      ///< what a transport does: never average
  int root = 0;                     ///< or the other rank of a message
  int tag = 0;                      ///< of a message
  bool average = false;             ///< the caller divides by the number of ranks
  std::uint64_t counts_digest = 0;  ///< of the uneven forms; 0: even blocks
  bool operator==(const Call&) const = default;
};

std::string_view name_of(CallKind);
/// "all_reduce of 4096 f32 (sum)"
std::string to_string(const Call&);

/// Checks the operands of a collective (types, counts, ranks) and returns its call. counts empty: equal blocks. What
/// only the root has is not looked at on the others. Throws Error.
Call collective_call(CallKind, const Tensor& out, const Tensor& in, std::span<const Index> counts, int root, ReduceOp,
                     int rank, int size);
/// The same of send and recv.
Call message_call(CallKind, const Tensor& x, int peer, int tag, int size);

/// Where the blocks of a call begin, by rank, and at the end where the last one ends. All but reduce_scatter to scatter
/// and all_to_all have one block.
std::vector<Index> block_offsets(const Call& call, std::span<const Index> counts, int size);

/// As many numbers from each rank, by rank. A collective call: an all_gather, or one that is to be told from it.
std::vector<std::int64_t> gather_numbers(Communicator&, std::span<const std::int64_t> mine,
                                         CallKind = CallKind::all_gather);
/// The ranks that give this color, in the order of their keys: those of the communicator that split() makes of them. A
/// collective call, which start() gets as a split that gathers colors and keys.
std::vector<int> split_members(Communicator&, int color, int key);

/// What is said where rank 0 has made the first call, and this rank the other.
std::string differing_text(const Call& first, int rank, const Call& other);
/// TRIREME_TIMEOUT in seconds; 300 if unset. Throws Error (usage) for a value that is no such number.
std::chrono::duration<double> unscaled_timeout();
/// How long a wait of this thread may last before it throws: unscaled_timeout() times what scale_timeouts() has said.
/// Throws as unscaled_timeout().
std::chrono::duration<double> collective_timeout();
/// Of this thread from now on, at least 1: others may be busy with what takes longer than a step, as disks do.
void scale_timeouts(double factor);
/// The factor of this thread. A thread that waits for the sake of another one takes it over.
double scale_of_timeouts();
/// What a wait says that was too long: "{who} waited 3 s for rank 1: another rank hangs ...". missing: " for rank 1",
/// or what else there is to say. With what the other ranks do, as far as that is known (FlightRecorder::others).
std::string late_text(std::string_view who, double seconds, std::string_view missing = "");

/// Asks ready() until it says true; false: not within so many seconds. Between, lets other threads run for a while, and
/// then sleeps: until events tells of something, or, where null, for up to 0.2 ms.
template <class Ready>
bool poll_until(double seconds, Ready&& ready, EventCount* events = nullptr) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  if (events && events->simulated()) return events->poll(seconds, std::ref(ready));
  auto last = Clock::now();
  Seconds waited(0);  // of which no more than 0.2 s counts between two looks: longer the process was stopped
  Seconds pause(20e-6);
  const int yields = events ? events->yields() : 200;
  for (int round = 0;; ++round) {
    const std::uint64_t ticket = events ? events->ticket() : 0;
    if (ready()) return true;
    const auto now = Clock::now();
    waited += std::min<Seconds>(now - last, Seconds(0.2)), last = now;
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
