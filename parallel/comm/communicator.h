// Communicator: messages and collectives between ranks. A rank is a thread or a process; code above this file is the
// same for both. Every rank of a communicator must make the same collective calls in the same order. With one rank,
// every collective is the identity.
//
// Exact results (integers, sums without rounding, max and min) are the same on every transport. A sum of floats has the
// same bits on every rank and in every run, but the bits depend on the transport:
// - Ranks that are threads, and processes that share the memory of one host, add in rank order. They add bf16 and f16
//   in f32 and round once: in all_reduce, and in reduce_scatter of equal blocks. Other sums of processes are MPI's.
// - MPI between hosts (or without shared memory), NCCL and the named algorithms each have their own order. They round
//   bf16 and f16 at every hop (NCCL: by its own rules).
// So another placement of ranks on hosts gives other last bits. A NaN operand makes the result NaN, also for max and
// min. All machines of a job must have the same byte order.
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

/// How elements of several ranks are combined. The head of this file describes f16 and bf16. average: each rank divides
/// its own result of sum by the number of ranks when the Work is done, which gives the bits of x / size() after a sum.
/// Integers have no average, nor has f16 on devices.
enum class ReduceOp : std::uint8_t { sum, max, min, average };

/// Lets a thread sleep until one of several operations makes progress (an eventcount): take a ticket, check whether
/// anything is done, and sleep until an event after the ticket.
class EventCount {
 public:
  virtual ~EventCount() = default;
  virtual std::uint64_t ticket() = 0;  ///< number of events so far
  virtual void sleep(std::uint64_t ticket,
                     double seconds) = 0;    ///< until an event after ticket, at most that many seconds
  virtual int yields() const { return 20; }  ///< how often a wait yields to other threads before it sleeps
  /// Whether time is simulated. Then poll() replaces poll_until() of parallel/comm/call.h.
  virtual bool simulated() const { return false; }
  /// As poll_until(), in simulated time: true once ready() is, false after that many seconds.
  virtual bool poll(double /*seconds*/, const std::function<bool()>& /*ready*/) { return false; }
};

/// An operation in progress (like torch.distributed.Work). It keeps its tensors alive. A wait returns when results may
/// be read and inputs reused, and throws the error of an operation that failed. Destroying an unfinished Work waits for
/// it, except during stack unwinding and after a wait for it has timed out. On a device (NCCL) a wait does not block
/// the host: only TRIREME_TIMEOUT limits it.
class Work {
 public:
  /// The operation, as a transport implements it.
  struct State {
    virtual ~State() = default;
    virtual bool done() = 0;                       ///< whether wait() would return at once; polls (MPI_Test)
    virtual void finish() {}                       ///< call when done: throws the error of an operation that failed
    virtual std::string late(double seconds) = 0;  ///< error text of a timed-out wait: the call and the missing ranks
    /// Signals every event that can make done() true; null: done() must be polled.
    virtual EventCount* events() { return nullptr; }
    /// Blocks until done(), at most that many seconds, then calls finish() and returns true. A later call does nothing.
    virtual bool wait(double seconds);
    /// Call when nothing will wait for the operation any more.
    virtual void give_up() { given_up_ = true; }
    /// Called when the last Work of this operation is destroyed. Waits and drops errors, unless the operation was given
    /// up. Does nothing during stack unwinding, when the peers may never arrive.
    void settle();

   private:
    const int unwinding_ = std::uncaught_exceptions();
    bool given_up_ = false;
  };
  Work() = default;  ///< already done
  /// From a transport's operation; null: already done.
  explicit Work(std::shared_ptr<State> state);
  /// Blocks the host until the operation is done (MPI_Wait); returns at once if it was waited for before. After
  /// TRIREME_TIMEOUT seconds (300) throws Error that names the call and, if known, the ranks that have not made it.
  void wait() {
    if (state_) wait_or_throw(-1);
  }
  /// As wait(), with a separate timeout in seconds; 0: throws unless done. After a timeout the operation continues.
  void wait(double seconds);
  /// As wait(seconds), but returns false after the timeout (std::future::wait_for).
  bool wait_for(double seconds);
  /// Whether wait() would return at once; polls (MPI_Test).
  bool done() { return !state_ || state_->done(); }
  /// The transport's operation; null: already done.
  State* state() const { return state_.get(); }

 private:
  void wait_or_throw(double seconds);
  std::shared_ptr<State> state_;
};

/// The index of a Work that is done or has failed; call its wait() for the error. Sleeps until there is one. After
/// TRIREME_TIMEOUT seconds throws Error that names the first Work. A Work stays done after its wait(): remove it from
/// the list before the next call. Throws Error for an empty list.
std::size_t wait_any(std::span<Work> works);
/// As above, with a separate timeout in seconds.
std::size_t wait_any(std::span<Work> works, double seconds);
/// Done when all works are done and `then` has run, inside the wait() or done() that finds the last one done
/// (std::when_all).
Work when_all(std::vector<Work> works, std::function<void()> then = {});

/// Upper limit of message tags (exclusive): MPI guarantees no more.
inline constexpr int message_tags = 32768;
/// Upper limit of the channels of send_to (exclusive). Each channel uses two tags from message_tags on.
inline constexpr int message_channels = 1024;

/// The header of a message to a channel. send_to fills in sender, type and bytes; sender and receiver agree on the
/// meaning of the other members.
struct MessageHeader {
  std::int32_t program = 0,  ///< the sender's program
      channel = 0;           ///< destination channel, in [0, message_channels)
  std::int32_t sender = 0;   ///< rank of the sender
  std::int32_t codec = 0;    ///< codec of the payload; 0: not encoded
  std::int64_t clock = 0;    ///< the sender's clock
  std::int64_t begin = 0,    ///< first element of the payload's slice
      end = 0;               ///< after the last element of the slice
  std::int64_t bytes = 0;    ///< size of the payload
  DType type = DType::f32;   ///< type of the payload's elements
};
/// A message from any sender: see Communicator::recv_any.
struct ReceivedMessage {
  MessageHeader header;  ///< as the sender filled it in
  Tensor payload;        ///< [bytes / size_of(type)], on the host
};

/// Why the job was aborted: message and kind of the error of the rank that failed first.
struct AbortReason {
  AbortReason() = default;  ///< not aborted
  /// An error's message and kind.
  AbortReason(std::string t, ErrorKind k = ErrorKind::communicator)
      : text(std::move(t)), kind(k) {}  // NOLINT: implicit
  /// As above.
  AbortReason(const char* t, ErrorKind k = ErrorKind::communicator) : text(t), kind(k) {}  // NOLINT: implicit
  bool empty() const { return text.empty(); }  ///< whether nothing was aborted
  std::string text;                            ///< message of the error; empty: not aborted
  ErrorKind kind = ErrorKind::communicator;    ///< kind of the error
};
/// Throws Error("op: ended because of ...") of the reason's kind.
[[noreturn]] void fail_ended(std::string_view op, const AbortReason&);

struct Call;
class VirtualClock;

/// A group of ranks that exchange messages and make collective calls together (torch ProcessGroup, MPI_Comm).
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  ///< this caller's rank, in [0, size())
  virtual int size() const = 0;  ///< number of ranks
  /// "single", "threads" or "mpi". Between processes of one host "mpi, shared memory": all_reduce and barrier use
  /// shared memory, and long vectors go directly from process to process; or "mpi, staged in shared memory": everything
  /// goes through a shared block. TRIREME_SHARED_MEMORY chooses: direct, staged or 0 (plain "mpi"); unset: the first
  /// that the system allows. After World::use of a GPU "mpi+nccl" or "mpi, staged through the host".
  virtual std::string transport() const = 0;

  // These calls do not block: wait for the returned Work. They take all types.
  // - Placement: tensors may be on the host or a device, and on different devices on different ranks. After World::use,
  //   the tensors of a collective are either on the host of all ranks or on the devices of all ranks. Collectives that
  //   NCCL lacks go through the host.
  // - Collective calls: all_reduce to all_to_all, barrier and split. Every rank makes them in the same order, with the
  //   same types, counts, roots and ReduceOps. Otherwise the wait on some rank throws Error that names both calls.
  // - Shapes: tensors are contiguous; only the number of elements counts. Each call throws Error at once for operands
  //   that do not fit.
  // - Forms with counts take one count per rank, 0 or more: rank i's block has counts[i] elements, and `total` is their
  //   sum. A tensor that only the root has (out of reduce and gather, in of scatter) is ignored on the other ranks.
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
  /// Block i of in [size * n] goes to rank i; out [size * n] gets one block from each rank, by rank. in and out must
  /// not overlap.
  Work all_to_all(const Tensor& out, const Tensor& in) { return collective(CallKind::all_to_all, out, in, {}, 0); }
  void barrier();  ///< returns when all ranks have called it
  /// Sends x [n] to rank `to`, which must receive n elements of the same type with the same tag, in [0, message_tags).
  /// Messages of one pair and tag arrive in the order in which they are sent. Not collective.
  Work send(const Tensor& x, int to, int tag = 0);
  /// Receives x [n] from rank `from`, which must send n elements of the same type with this tag. Not collective.
  Work recv(const Tensor& x, int from, int tag = 0);

  // Messages from any sender, for servers. They work between threads and MPI processes; tensors on devices go through
  // the host. Not collective. One thread makes a rank's recv_any calls and waits; the communicator must outlive them.
  /// Sends x and header to rank `to`, which receives them by recv_any of header.channel, in sending order.
  /// x undefined: no payload. Done when x may be reused, at the earliest when the receiver has room for it.
  Work send_to(MessageHeader header, const Tensor& x, int to);
  /// Receives the next message to this channel from any rank: in sending order for each sender, and senders in turn.
  /// message must live until the Work is done or destroyed. Destroying the Work before a message arrives receives none.
  Work recv_any(ReceivedMessage& message, int channel);

  /// Ranks with equal color (0 or more) form a new communicator, ordered by key then rank. A collective call.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  /// Aborts the job: the waits of all ranks throw an Error of this text and kind. The failing rank calls it.
  virtual void abort(const AbortReason& reason) = 0;
  /// The reason after a rank has called abort(), else empty. Any thread may call it.
  virtual AbortReason ended() const = 0;

  // For transports and wrappers; users call the functions above.
  /// Starts a call (parallel/comm/call.h) with checked operands. Collectives have 2 or more ranks. all_reduce passes
  /// one tensor as out and in. broadcast has in on the root and out elsewhere; send has in, recv has out. A tensor that
  /// this rank does not have is undefined. counts: as the caller gave them; empty for even blocks.
  virtual Work start(const Call&, const Tensor& out, const Tensor& in, std::span<const Index> counts) = 0;
  /// A rank from which a message with this tag can be received now (MPI_Iprobe); -1: none. The search starts at rank
  /// `first` and wraps around.
  virtual int probe(int tag, int first) = 0;
  /// Signals arriving messages; null: probe() must be polled.
  virtual EventCount* events() { return nullptr; }
  /// This rank's clock if time is simulated; else null.
  virtual VirtualClock* clock() { return nullptr; }

 protected:
  /// Starts a call without tensors and waits; throws if the job is aborted meanwhile.
  void meet(const Call&);

 private:
  struct AnyReceive;
  Work collective(CallKind, Tensor out, Tensor in, std::span<const Index> counts, int root, ReduceOp = ReduceOp::sum);
  std::map<int, int> next_sender_;  // by channel
};

/// A communicator that forwards to another one (inner) every call that a derived class does not override.
class CommunicatorWrapper : public Communicator {
 public:
  /// Takes the communicator to forward to.
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
  std::unique_ptr<Communicator> inner_;  ///< the communicator to forward to
};

/// Wraps inner so that all_reduce runs by the named algorithm: "default" (inner's own: memory shared by the ranks of
/// one host, else MPI's; the default), one on inner's send and recv: "ring", "recursive_doubling", "rabenseifner",
/// "tree", "hierarchical" or "hierarchical(N)" (N ranks a node), "torus" or "torus(N)" (N rows); or "auto": the fastest
/// of all these for the number of ranks and bytes, as measured in this call. A collective call. Throws Error with the
/// list for another name. Named algorithms run on a separate thread; "default" on one host is carried out by the
/// waiting ranks. Named algorithms move tensors on devices through the host.
std::unique_ptr<Communicator> with_all_reduce(std::unique_ptr<Communicator>&& inner, const std::string& algorithm);

/// "MPICH 4.0.2 (MPI 4.0)", or why there is no MPI. `trireme info` prints it.
std::string mpi_version();

}  // namespace trireme
