// Communicator: how ranks talk. A rank is a thread or a process and nothing above this file can tell.
// Every rank of a communicator must make the same collective calls in the same order. Size 1: everything is the
// identity.
//
// What is exact (integers, values whose sums round nowhere, max and min) is the same on every transport. A sum of
// floats has the same bits on every rank, and from one run to the next, but they depend on the way it takes: ranks that
// are threads, and processes of one host over the memory that they share, add in the order of ranks, bf16 and f16 in
// f32 and rounded once (all_reduce: reduce and reduce_scatter of processes are MPI's); MPI between hosts (and without
// shared memory), NCCL and the named algorithms each add in an order of their own, and round bf16 and f16 at every hop
// (NCCL: as it does). So another layout of ranks over hosts gives other last bits. Where a float is NaN, so is the
// result, of max and min too. Processes must be of machines of one byte order.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/core/error.h"
#include "parallel/comm/call_kind.h"

namespace trireme {

/// How elements of several ranks become one. f16 and bf16 as the head of this file says. average: the sum, rounded as
/// sum's is, divided by the number of ranks, by each rank on its own result when the Work is done: the bits of
/// x / size() after a sum. Integers have none, nor has f16 on devices.
enum class ReduceOp : std::uint8_t { sum, max, min, average };

/// Where waits for one of several operations sleep (an eventcount): take a ticket, look whether anything is done, and
/// sleep until something has happened since.
class EventCount {
 public:
  virtual ~EventCount() = default;
  virtual std::uint64_t ticket() = 0;
  virtual void sleep(std::uint64_t ticket, double seconds) = 0;  ///< at most so long
  virtual int yields() const { return 20; }  ///< how often a wait lets other threads run before it sleeps
  /// Whether time is simulated; then poll() does what poll_until() is to do (parallel/comm/call.h).
  virtual bool simulated() const { return false; }
  virtual bool poll(double /*seconds*/, const std::function<bool()>& /*ready*/) { return false; }
};

/// An operation under way. It keeps its tensors alive. A wait returns when its results may be read (and inputs reused),
/// and throws what the operation failed with. Destroying an unfinished Work waits for it, except on the way out of an
/// exception, and where a wait for it has thrown for being too long. On a device (NCCL) a wait does not hold the host
/// up: there TRIREME_TIMEOUT alone counts.
class Work {
 public:
  /// The operation, as a transport implements it.
  struct State {
    virtual ~State() = default;
    virtual bool done() = 0;                       ///< whether wait() would return at once; polls (MPI_Test)
    virtual void finish() {}                       ///< once it is done: throws what it failed with
    virtual std::string late(double seconds) = 0;  ///< what was waited for so long: the call, the ranks missing
    /// Told of all that can make done() true; null: done() is to be polled.
    virtual EventCount* events() { return nullptr; }
    /// Blocks until done() at most so long, then finish(): true. Again, once it has been done, it does nothing.
    virtual bool wait(double seconds);
    /// Nobody waits for it any more.
    virtual void give_up() { given_up_ = true; }
    /// The last Work of it goes: wait(), whose errors nobody is left to be told, unless it was given up; nothing on the
    /// way out of an exception, when the partners may never come.
    void settle();

   private:
    const int unwinding_ = std::uncaught_exceptions();
    bool given_up_ = false;
  };
  Work() = default;  ///< already done
  /// Of a transport's operation; null: already done.
  explicit Work(std::shared_ptr<State> state);
  /// Blocks the host until the operation is done (MPI_Wait); at once for one that was waited for. Throws Error naming
  /// the call, and the ranks that have not made it where they are known, after TRIREME_TIMEOUT seconds (300).
  void wait() {
    if (state_) wait_or_throw(-1);
  }
  /// The same with a deadline of its own, from now; 0: it is done, or throws. The operation goes on.
  void wait(double seconds);
  /// The same; false where it is not done by then (std::future::wait_for).
  bool wait_for(double seconds);
  /// Whether wait() would return at once; polls (MPI_Test).
  bool done() { return !state_ || state_->done(); }
  /// Null: done.
  State* state() const { return state_.get(); }

 private:
  void wait_or_throw(double seconds);
  std::shared_ptr<State> state_;
};

/// The index of a Work that is done, or has failed; its wait() tells. Sleeps until there is one, at most
/// TRIREME_TIMEOUT seconds, then throws Error naming the first. One that was waited for is done: take it out of the
/// list before the next call. Throws Error for an empty list.
std::size_t wait_any(std::span<Work> works);
/// The same with a deadline of its own, in seconds from now.
std::size_t wait_any(std::span<Work> works, double seconds);
/// Done when all of these are; then once `then` has run, in the wait() or done() that finds it so (std::when_all).
Work when_all(std::vector<Work> works, std::function<void()> then = {});

/// Tags of messages are below this: MPI promises no more.
inline constexpr int message_tags = 32768;
/// Channels of send_to are below this. Each takes two tags from message_tags on.
inline constexpr int message_channels = 1024;

/// The head of a message to a channel. send_to fills in sender, type and bytes; the others mean what its receiver takes
/// them for.
struct MessageHeader {
  std::int32_t program = 0, channel = 0;  ///< of the sender; where it goes, in [0, message_channels)
  std::int32_t sender = 0;                ///< rank
  std::int32_t codec = 0;                 ///< what the payload is encoded by; 0: nothing
  std::int64_t clock = 0;                 ///< the sender's
  std::int64_t begin = 0, end = 0;        ///< the slice that the payload is about
  std::int64_t bytes = 0;                 ///< of the payload
  DType type = DType::f32;                ///< of its elements
};
struct ReceivedMessage {
  MessageHeader header;
  Tensor payload;  ///< [bytes / size_of(type)], on the host
};

/// Why the operation of all ranks was ended: the message and the kind of the error of the rank that failed first.
struct AbortReason {
  AbortReason() = default;
  AbortReason(std::string t, ErrorKind k = ErrorKind::communicator)
      : text(std::move(t)), kind(k) {}                                                     // NOLINT: implicit
  AbortReason(const char* t, ErrorKind k = ErrorKind::communicator) : text(t), kind(k) {}  // NOLINT: implicit
  bool empty() const { return text.empty(); }
  std::string text;  ///< empty: nobody has ended it
  ErrorKind kind = ErrorKind::communicator;
};
/// Throws Error("op: ended because of ...") of the reason's kind.
[[noreturn]] void fail_ended(std::string_view op, const AbortReason&);

struct Call;
class VirtualClock;

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  ///< of this caller, in [0, size())
  virtual int size() const = 0;  ///< how many ranks there are
  /// "single", "threads" or "mpi"; between processes of one host "mpi, shared memory" (all_reduce and barrier go
  /// through memory that they share, long vectors straight from process to process) or "mpi, staged in shared memory"
  /// (all of it through a block that they share). TRIREME_SHARED_MEMORY chooses: direct, staged, 0 (plain "mpi");
  /// unset, the first that the system allows. After World::use of a GPU "mpi+nccl" or "mpi, staged through the host".
  virtual std::string transport() const = 0;

  // Non-blocking: the returned Work must be waited for. All types. Tensors may lie on the host or on a device, on
  // another one on each rank (collectives after World::use: on the host of all ranks, or on the devices of all; those
  // that NCCL lacks go by the host). all_reduce to all_to_all, barrier and split are collective calls: every rank makes
  // them, in one order, with equal types, counts, roots and ReduceOps; else the wait on some rank throws Error naming
  // both calls. Tensors are contiguous and of any shape: only their numbers of elements count. Each throws Error at
  // once for operands that do not fit. The forms with counts take one per rank, 0 or more: rank i's block has counts[i]
  // elements, and `total` is their sum. A tensor that only the root has (reduce's and gather's out, scatter's in) is
  // not looked at on the others.
  /// x [n] becomes the reduction of all ranks' x, in place.
  Work all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum) {
    return collective(CallKind::all_reduce, x, x, {}, 0, op);
  }
  /// out [n] of rank `root` becomes the reduction of all ranks' in [n]. out may be in.
  Work reduce(const Tensor& out, const Tensor& in, int root, ReduceOp op = ReduceOp::sum) {
    return collective(CallKind::reduce, out, in, {}, root, op);
  }
  /// out [n / size] (this rank's share) of the sum of in [n]; n must divide by size. out may be this rank's block of
  /// in.
  Work reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op = ReduceOp::sum) {
    return reduce_scatterv(out, in, {}, op);
  }
  /// out [counts[rank]] of the sum of in [total]. out may be this rank's block of in.
  Work reduce_scatterv(const Tensor& out, const Tensor& in, std::span<const Index> counts,
                       ReduceOp op = ReduceOp::sum) {
    return collective(CallKind::reduce_scatter, out, in, counts, 0, op);
  }
  /// out [n * size]: the in [n] of every rank, by rank. in may be this rank's block of out.
  Work all_gather(const Tensor& out, const Tensor& in) { return all_gatherv(out, in, {}); }
  /// out [total]: the in [counts[rank]] of every rank, by rank. in may be this rank's block of out.
  Work all_gatherv(const Tensor& out, const Tensor& in, std::span<const Index> counts) {
    return collective(CallKind::all_gather, out, in, counts, 0);
  }
  /// out [n * size] of rank `root`: the in [n] of every rank, by rank. in may be the root's block of out.
  Work gather(const Tensor& out, const Tensor& in, int root) { return gatherv(out, in, {}, root); }
  /// out [total] of rank `root`: the in [counts[rank]] of every rank, by rank. in may be the root's block of out.
  Work gatherv(const Tensor& out, const Tensor& in, std::span<const Index> counts, int root) {
    return collective(CallKind::gather, out, in, counts, root);
  }
  /// out [n]: this rank's block of the in [n * size] of rank `root`. out may be the root's block of in.
  Work scatter(const Tensor& out, const Tensor& in, int root) { return scatterv(out, in, {}, root); }
  /// out [counts[rank]]: this rank's block of the in [total] of rank `root`. out may be the root's block of in.
  Work scatterv(const Tensor& out, const Tensor& in, std::span<const Index> counts, int root) {
    return collective(CallKind::scatter, out, in, counts, root);
  }
  /// x [n] of rank `root` goes to all ranks.
  Work broadcast(const Tensor& x, int root) { return collective(CallKind::broadcast, x, x, {}, root); }
  /// Block i of in [size * n] goes to rank i; out [size * n] holds one block from each rank, by rank. They are apart.
  Work all_to_all(const Tensor& out, const Tensor& in) { return collective(CallKind::all_to_all, out, in, {}, 0); }
  void barrier();  ///< returns when all ranks have called it
  /// x [n] to rank `to`, which receives as many elements of the same type with the same tag, in [0, message_tags).
  /// Messages of one pair and tag arrive in the order in which they are sent. Not collective.
  Work send(const Tensor& x, int to, int tag = 0);
  /// x [n] from rank `from`, which sends as many elements of the same type with this tag. Not collective.
  Work recv(const Tensor& x, int from, int tag = 0);

  // Messages to whoever asks for any: a server's. Between threads and MPI processes; devices by way of the host. Not
  // collective. Calls and waits of one rank's recv_any come from one thread, and the communicator outlives them.
  /// x and header to rank `to`, which takes them by recv_any of header.channel, in the order in which they are sent.
  /// x undefined: no payload. Done when x may be reused, at the earliest when the receiver has room for it.
  Work send_to(MessageHeader header, const Tensor& x, int to);
  /// The next message to this channel from any rank: each sender's in its order, the senders with messages there by
  /// turns. message is written, and lives, until the Work is done or gone. Dropping it before a message is there takes
  /// none.
  Work recv_any(ReceivedMessage& message, int channel);

  /// Ranks with equal color form a new communicator, ordered by key then rank. A collective call.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  /// Ends the operation of every rank with an error: their waits throw an Error of this text and kind. Called by the
  /// rank that failed.
  virtual void abort(const AbortReason& reason) = 0;
  /// The reason, once some rank has called abort(); empty before. From any thread.
  virtual AbortReason ended() const = 0;

  // What a transport implements, and a wrapper passes on; users call what stands above.
  /// Starts a call (parallel/comm/call.h) whose operands were checked. Collectives come with 2 or more ranks.
  /// all_reduce has one tensor for out and in; broadcast has in on the root and out elsewhere, send in, recv out; a
  /// tensor that this rank does not have is undefined. counts: as the caller gave them, empty for even blocks.
  virtual Work start(const Call&, const Tensor& out, const Tensor& in, std::span<const Index> counts) = 0;
  /// A rank from which a message with this tag can be received now (MPI_Iprobe), the first from rank `first` on and
  /// round to the one before it; -1: there is none.
  virtual int probe(int tag, int first) = 0;
  /// Told of messages that come; null: probe() is to be polled.
  virtual EventCount* events() { return nullptr; }
  /// Of this rank, where time is simulated; else null.
  virtual VirtualClock* clock() { return nullptr; }

 protected:
  /// Starts a call without tensors and waits; throws where the job was ended meanwhile.
  void meet(const Call&);

 private:
  struct AnyReceive;
  Work collective(CallKind, Tensor out, Tensor in, std::span<const Index> counts, int root, ReduceOp = ReduceOp::sum);
  std::map<int, int> next_sender_;  // by channel
};

/// A communicator that another one does the work of: what a class derived from it does not say, inner does.
class CommunicatorWrapper : public Communicator {
 public:
  explicit CommunicatorWrapper(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string transport() const override { return inner_->transport(); }
  int probe(int tag, int first) override { return inner_->probe(tag, first); }
  EventCount* events() override { return inner_->events(); }
  VirtualClock* clock() override { return inner_->clock(); }
  void abort(const AbortReason& reason) override { inner_->abort(reason); }
  AbortReason ended() const override { return inner_->ended(); }

 protected:
  std::unique_ptr<Communicator> inner_;
};

/// Wraps inner so that all_reduce runs by the named algorithm: "default" (inner's own: memory shared by the ranks of
/// one host, else MPI's; the default), one on inner's send and recv: "ring", "recursive_doubling", "rabenseifner",
/// "tree", "hierarchical" or "hierarchical(N)" (N ranks a node), "torus" or "torus(N)" (N rows); or "auto": the fastest
/// of all these for the number of ranks and bytes, as measured in this call. A collective call. Throws Error with the
/// list for another name. Named algorithms run on a thread of their own; "default" on one host is done by the ranks
/// that wait. Named algorithms take tensors on devices by way of the host.
std::unique_ptr<Communicator> with_all_reduce(std::unique_ptr<Communicator>&& inner, const std::string& algorithm);

/// "MPICH 4.0.2 (MPI 4.0)", or why there is no MPI. For `trireme info`.
std::string mpi_version();

}  // namespace trireme
