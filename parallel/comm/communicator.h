// Communicator: how ranks talk. A rank is a thread or a process and nothing above this file can tell.
// Every rank of a communicator must make the same collective calls in the same order. Size 1: everything is the
// identity.
//
// What is exact (integers, values whose sums round nowhere, max and min) is the same on every transport. A sum of
// floats has the same bits on every rank, and from one run to the next, but they depend on the way it takes: ranks that
// are threads, and processes of one host over the memory that they share, add in the order of ranks, bf16 and f16 in
// f32 and rounded once; MPI between hosts (and without shared memory), NCCL and the named algorithms each add in an
// order of their own, and round bf16 and f16 at every hop (NCCL: as it does). So another layout of ranks over hosts
// gives other last bits. Where a float is NaN, so is the result, of max and min too. Processes must be of machines of
// one byte order.
#pragma once
#include <exception>
#include <memory>
#include <string>

#include "framework/tensor/tensor.h"

namespace trireme {

/// How elements of several ranks become one: by sum, largest or smallest. f16 and bf16 as the head of this file says.
enum class ReduceOp : std::uint8_t { sum, max, min };

/// An operation under way. It keeps its tensors alive. wait() returns when its results may be read (and inputs reused),
/// and throws what the operation failed with; so does a wait longer than TRIREME_TIMEOUT seconds (300). Destroying an
/// unfinished Work waits for it, except on the way out of an exception.
class Work {
 public:
  /// The operation, as a transport implements it.
  struct State {
    virtual ~State() = default;
    virtual void wait() = 0;  ///< blocks until it is done; throws what it failed with
    virtual bool done() = 0;  ///< whether wait() would return at once; polls (MPI_Test)

   protected:
    /// For the destructors of unfinished operations: wait(), whose errors nobody is left to be told; nothing on the way
    /// out of an exception, when the partners may never come.
    void settle() {
      if (std::uncaught_exceptions() > unwinding_) return;
      try {
        wait();
      } catch (...) {}
    }

   private:
    const int unwinding_ = std::uncaught_exceptions();
  };
  Work() = default;  ///< already done
  /// Of a transport's operation; null: already done.
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Blocks the host until the operation is done (MPI_Wait); at once for one that was waited for.
  void wait() {
    if (state_) state_->wait(), state_.reset();
  }
  /// Whether wait() would return at once; polls (MPI_Test).
  bool done() { return !state_ || state_->done(); }

 private:
  std::shared_ptr<State> state_;
};

/// Tags of messages are below this: MPI promises no more.
inline constexpr int message_tags = 32768;

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
  // another one on each rank (collectives after World::use: on the host of all ranks, or on the devices of all).
  // all_reduce to all_to_all, barrier and split are collective calls: every rank makes them, in one order, with equal
  // types, counts, roots and ReduceOps; else the wait on some rank throws Error naming both calls. Tensors are
  // contiguous and of any shape: only their numbers of elements count. Each throws Error at once for operands that do
  // not fit.
  /// x [n] becomes the reduction of all ranks' x, in place.
  virtual Work all_reduce(const Tensor& x, ReduceOp = ReduceOp::sum) = 0;
  /// out [n / size] (this rank's share) of the sum of in [n]; n must divide by size. out may be this rank's block of
  /// in.
  virtual Work reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp = ReduceOp::sum) = 0;
  /// out [n * size]: the in [n] of every rank, by rank. in may be this rank's block of out.
  virtual Work all_gather(const Tensor& out, const Tensor& in) = 0;
  /// x [n] of rank `root` goes to all ranks.
  virtual Work broadcast(const Tensor& x, int root) = 0;
  /// Block i of in [size * n] goes to rank i; out [size * n] holds one block from each rank, by rank. They are apart.
  virtual Work all_to_all(const Tensor& out, const Tensor& in) = 0;
  /// x [n] to rank `to`, which receives as many elements of the same type with the same tag, in [0, message_tags).
  /// Messages of one pair and tag arrive in the order in which they are sent. Not collective.
  virtual Work send(const Tensor& x, int to, int tag = 0) = 0;
  /// x [n] from rank `from`, which sends as many elements of the same type with this tag. Not collective.
  virtual Work recv(const Tensor& x, int from, int tag = 0) = 0;
  virtual void barrier() = 0;  ///< returns when all ranks have called it
  /// Ranks with equal color form a new communicator, ordered by key then rank. A collective call.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  /// Ends the operation of every rank with an error: their waits throw Error(reason). Called by the rank that failed.
  virtual void abort(const std::string& reason) = 0;
  /// The reason, once some rank has called abort(); empty before. From any thread.
  virtual std::string ended() const = 0;
};

/// Wraps inner so that all_reduce runs by the named algorithm: "default" (inner's own: memory shared by the ranks of
/// one host, else MPI's; the default), or one on inner's send and recv: "ring", "recursive_doubling", "rabenseifner",
/// "tree". A collective call. Throws Error with the list for another name. Those run on a thread of their own;
/// "default" on one host is done by the ranks that wait. Named algorithms take tensors on devices by way of the host.
std::unique_ptr<Communicator> with_all_reduce(std::unique_ptr<Communicator>&& inner, const std::string& algorithm);

/// "MPICH 4.0.2 (MPI 4.0)", or why there is no MPI. For `trireme info`.
std::string mpi_version();

}  // namespace trireme
