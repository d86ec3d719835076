// VirtualTime: the simulated clocks and links of ranks that are threads (World::virtual_time): when each operation
// ends, and which rank may go on. All that ranks do is real; only what it takes is said by the Cluster.
//
// A rank's link carries its operations one at a time, in the order in which the rank starts them. A message leaves when
// its sender has started it and its link is free, and takes message_time; then it has arrived and its send is done. A
// receive ends when it was started and the message has arrived. A collective begins when the last of its ranks has
// started it and has its link free, and takes collective_time of all their links. A wait sets the clock to the end. An
// operation's end is known (it is resolved) as soon as it is first in the queues of all its ranks.
//
// What a rank finds (done, probe, wait_any, deadlines) depends on what others have done by then. So it looks only when
// no other can do anything earlier: all are blocked, or run or look at later times, by (time, rank).
#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/comm/call.h"
#include "parallel/comm/virtual_clock.h"

namespace trireme {

/// Ranks of the world, by rank of a communicator.
using RankList = std::shared_ptr<const std::vector<int>>;

/// An operation under way.
struct VirtualOp {
  Call call;
  RankList ranks;            // their links carry it; of a receive: who receives
  Nanoseconds time = 0;      // that it takes
  Nanoseconds start = 0;     // not before
  std::size_t first_of = 0;  // of so many ranks' queues
  bool resolved = false;     // end is known
  Nanoseconds end = 0;
  Tensor payload;                           // of a message, and of a receive that has got it
  std::shared_ptr<VirtualOp> receive;       // of a message: gets the payload
  std::vector<std::array<int, 3>> callers;  // of a collective: color, key and rank (of the communicator) of a split
  std::map<int, std::vector<std::unique_ptr<Communicator>>> parts;  // of a split, by color and new rank
  std::vector<VirtualState> states;                                 // of save and restore, by rank
  std::function<void(VirtualOp&)> then;                             // as soon as it is resolved
};

class VirtualTime {
 public:
  using Op = std::shared_ptr<VirtualOp>;
  static constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max() / 2;

  VirtualTime(int ranks, const Cluster&);
  const Cluster& cluster() const { return cluster_; }

  // All are called by the rank's own thread, but for end() and ended(). rank: of the world.
  void begin(int rank);   ///< the first call; waits for a core
  void finish(int rank);  ///< the last, unless it ends by an exception
  Nanoseconds now(int rank) const;
  void advance(int rank, Nanoseconds by);
  /// Call `number` of the communicator: returns that of the first rank, op or another's. caller: as VirtualOp says.
  Op collective(int rank, std::uint64_t communicator, std::uint64_t number, Op op, const std::array<int, 3>& caller);
  /// own, call.root: of the communicator. x: nobody else's.
  Op send(int rank, std::uint64_t communicator, const RankList&, const Call&, int own, Tensor x);
  Op receive(int rank, std::uint64_t communicator, const RankList&, const Call&, int own);
  int probe(int rank, std::uint64_t communicator, int own, int tag, int first);
  /// Blocks until it ends, at most so many seconds of virtual time; but of real time where they are TRIREME_TIMEOUT or
  /// more. Of no time: asks as done() does.
  bool wait(int rank, const Op&, double seconds);
  /// Whether it has ended by now.
  bool done(int rank, const Op&);
  /// Until ready() says true, which asks done() and probe(): at each moment at which one of these may change.
  bool poll(int rank, double seconds, const std::function<bool()>& ready);
  VirtualState save(int rank);
  void restore(int rank, const VirtualState&);

  void end(const std::string& reason);
  std::string ended() const;

 private:
  /// Of one sender: messages that nobody has asked for, or receives that nothing has been sent for.
  struct Queue {
    std::deque<Op> messages, receives;
  };
  struct Mailbox {
    int owner = 0;              // rank of the world
    int next = 0;               // sender whose turn it is
    std::map<int, Queue> from;  // by sender
  };
  enum class State { running, waiting, asleep, finished };
  struct Rank {
    Nanoseconds clock = 0, link = 0;
    State state = State::running;
    bool core = false;
    Op awaited;                                    // waiting
    Nanoseconds deadline = 0, wake = 0;            // asleep
    std::vector<Op> polled;                        // found undone since the clock went on
    std::vector<const Mailbox*> mailboxes;         // found empty
    std::deque<std::pair<Op, Nanoseconds>> queue;  // of the link, with the times when they were started
    std::uint64_t meetings = 0;                    // of save and restore
    VirtualState given;                            // to restore
    int repeats = 0;                               // of questions
    std::condition_variable changed;
    /// The clock has gone on, or something was started.
    void forget() { polled.clear(), mailboxes.clear(), repeats = 0; }
  };
  using Lock = std::unique_lock<std::mutex>;

  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  Lock enter();
  Nanoseconds deadline(const Rank&, double seconds) const;
  Nanoseconds next_event(const Rank&) const;
  Mailbox& mailbox(std::uint64_t communicator, int own, int tag, int owner);
  void enqueue(int rank, const Op&);
  void resolve(std::vector<Op> ready);
  void match(Queue&, std::vector<Op>& ready);
  void schedule();
  void hand_out();
  bool block(Lock&, Rank&, State);
  bool sleep(Lock&, Rank&, Nanoseconds deadline);
  template <class T>
  void asked_again(Lock&, Rank&, std::vector<T>& asked, const T& what);
  void end_by(std::string reason, bool stuck);
  [[noreturn]] void throw_ended(const Call&) const;
  std::string where(const Rank&) const;
  Op meeting(int rank, const std::function<void(VirtualOp&)>& then, const VirtualState& state);

  const Cluster cluster_;
  const Nanoseconds lookahead_;  // what a rank does is felt by others after so long
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  RankList all_;
  int cores_;  // that are free
  std::chrono::steady_clock::time_point moved_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Op> open_;        // collectives, by communicator and number
  std::map<std::tuple<std::uint64_t, int, int>, Mailbox> mailboxes_;  // by communicator, receiver, tag
  std::string reason_;
  bool ended_ = false, stuck_ = false;
};

/// The communicators of all ranks, between threads, and their clocks.
struct VirtualRanks {
  std::shared_ptr<VirtualTime> time;
  std::vector<std::unique_ptr<Communicator>> communicators;
};
VirtualRanks virtual_ranks(int ranks, const Cluster&);

}  // namespace trireme
