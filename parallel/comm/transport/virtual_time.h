// VirtualTime: the simulated clocks and links of ranks that are threads (World::virtual_time): when each operation
// ends, and which rank may continue. Ranks compute real data; only the durations come from the Cluster.
//
// A rank's link carries its operations one at a time, in starting order. A message leaves when
// its sender has started it and its link is free, and takes message_time; then it has arrived and its send is done. A
// receive ends when it has been started and the message has arrived. A collective begins when the last of its ranks has
// started it and has a free link, and takes collective_time on the links of all. A wait sets the clock to the end of
// the operation. The end is known (the operation is resolved) as soon as it is first in the queues of all its ranks.
//
// The result of a query (done, probe, wait_any, deadlines) depends on earlier actions of other ranks. So a query is
// answered only when no other rank can act earlier: all are blocked, or are at later times, ordered by (time, rank).
#pragma once
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

class VirtualTime {
 public:
  struct Mailbox;
  /// An operation in progress.
  struct Operation {
    Call call = {};
    RankList ranks = {};       // ranks whose links carry it; none for a receive
    Nanoseconds time = 0;      // duration
    bool timeless = false;     // a meeting that does not change clocks and links
    Nanoseconds start = 0;     // earliest start
    std::size_t started = 0;   // number of ranks that have started it
    std::size_t first_of = 0;  // number of ranks in whose queue it is first
    bool resolved = false;     // end is known
    Nanoseconds end = 0;
    Tensor payload = {};         // of a message, and of a receive that has matched one
    Mailbox* mailbox = nullptr;  // of a message: destination
    int sender = 0;              // of a message: rank in the communicator
  };
  using Op = std::shared_ptr<Operation>;
  /// The queue of one sender: messages with a time of arrival that no receive has taken, or receives that wait for a
  /// message.
  struct Queue {
    std::deque<Op> messages, receives;
  };
  struct Mailbox {
    int owner = 0, tag = 0;     // rank of the world
    int next = 0;               // sender whose turn it is
    std::map<int, Queue> from;  // by sender
  };
  /// A query whose answer was no: an operation not done, or an empty mailbox.
  struct Question {
    Op op = nullptr;
    const Mailbox* mailbox = nullptr;
    bool operator==(const Question&) const = default;
  };
  enum class State { ready, running, waiting, asleep, finished };  // ready: to run, when a core is free
  struct Rank final : VirtualClock, EventCount {
    Rank(VirtualTime& t, int r) : time(t), number(r) {}
    Nanoseconds now() const override { return clock; }
    const Cluster& cluster() const override { return time.cluster_; }
    void advance(Nanoseconds by) override { time.advance(*this, by); }
    void set_price(std::function<Nanoseconds(const Link&)> of) override { price = std::move(of); }
    VirtualState save() override { return time.save(*this); }
    void restore(const VirtualState& state) override { time.restore(*this, state); }
    std::uint64_t ticket() override { return 0; }
    void sleep(std::uint64_t, double) override {}
    bool simulated() const override { return true; }
    bool poll(double seconds, const std::function<bool()>& ready) override { return time.poll(*this, seconds, ready); }
    /// Call when the clock has advanced or an operation was started.
    void forget() {
      asked.clear();
      repeats = 0;
    }

    VirtualTime& time;
    const int number;                               // of the world
    std::function<Nanoseconds(const Link&)> price;  // of the next collective
    Nanoseconds clock = 0, link = 0;
    State state = State::ready;
    Nanoseconds deadline = 0, wake = 0;            // asleep
    std::vector<Question> asked;                   // since the clock advanced; state waiting: the one operation
    std::deque<std::pair<Op, Nanoseconds>> queue;  // of the link, with the times when they were started
    int repeats = 0;                               // of questions
    std::condition_variable changed;
  };
  static constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max() / 2;

  VirtualTime(int ranks, const Cluster&);
  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  const RankList& all() const { return all_; }

  // The rank's thread calls all of these, except end() and ended().
  void begin(Rank&);   ///< the first call; waits for a core
  void finish(Rank&);  ///< the last, unless it ends by an exception
  /// Call `number` of the communicator: returns the operation of the rank that came first, op or another rank's.
  Op collective(Rank&, std::uint64_t communicator, std::uint64_t number, Op op);
  /// own: this rank's number in the communicator, whose world ranks are `ranks`; the call uses these numbers. x: not
  /// shared.
  Op send(Rank&, std::uint64_t communicator, const RankList& ranks, int own, const Call&, Tensor x);
  Op receive(Rank&, std::uint64_t communicator, const RankList& ranks, int own, const Call&);
  int probe(Rank&, std::uint64_t communicator, int own, int tag, int first);
  /// Blocks until the operation ends, at most that many seconds: of virtual time below TRIREME_TIMEOUT, else of real
  /// time. 0 s: as done().
  bool wait(Rank&, const Op&, double seconds);
  /// Whether the operation has ended at the rank's time.
  bool done(Rank&, const Op&);

  void end(const AbortReason& reason);
  AbortReason ended() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  Lock enter();
  void advance(Rank&, Nanoseconds by);
  /// Calls ready(), which uses done() and probe(), at each time at which these may change, until it returns true.
  bool poll(Rank&, double seconds, const std::function<bool()>& ready);
  VirtualState save(Rank&);
  void restore(Rank&, const VirtualState&);
  void meet(Rank&);
  Nanoseconds deadline(const Rank&, double seconds) const;
  Nanoseconds next_event(const Rank&) const;
  Mailbox& mailbox(std::uint64_t communicator, int own, int tag, int owner);
  void enqueue(Rank&, const Op&);
  void take_link(Rank&, std::vector<Op>& ready);
  static void match(Queue&);
  void schedule();
  bool block(Lock&, Rank&, State);
  bool sleep(Lock&, Rank&, Nanoseconds deadline);
  void asked_again(Lock&, Rank&, const Question&);
  void end_by(AbortReason reason, bool stuck);
  [[noreturn]] void throw_ended(const Call&) const;
  std::string where(const Rank&) const;

  const Cluster cluster_;
  const Nanoseconds lookahead_;  // shortest time after which a rank's action affects another rank
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  RankList all_;
  int cores_;  // free cores
  std::chrono::steady_clock::time_point moved_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Op> open_;        // collectives, by communicator and number
  std::map<std::tuple<std::uint64_t, int, int>, Mailbox> mailboxes_;  // by communicator, receiver, tag
  AbortReason reason_;
  bool ended_ = false, stuck_ = false;
};

/// The communicators of all ranks, between threads, and their clocks.
struct VirtualRanks {
  std::shared_ptr<VirtualTime> time;
  std::vector<std::unique_ptr<Communicator>> communicators;
};
VirtualRanks virtual_ranks(int ranks, const Cluster&);

}  // namespace trireme
