// ShmAllReduce: all-reduce, reduce-scatter, all-gather and barrier between the processes of one host in shared memory.
// A waiting rank sleeps on a futex, so there may be more ranks than cores. Short vectors are processed in pieces: every
// rank copies its piece in, any available rank reduces chunks, and every rank copies the result out. Reduction is in
// rank order, so the bits are equal on every rank and equal to the result between threads. For a long vector ranks
// share only the address: the rank that reduces a chunk reads it from the other processes and writes the result back.
// In a reduce-scatter and a long all-gather each rank reads what it needs, and writes to no other process. Collectives
// that MPI runs are only announced here, to detect ranks that make different calls.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

#include "parallel/comm/call.h"
#include "parallel/comm/transport/shared_memory.h"

namespace trireme {

/// The reason why the job was aborted, in memory that all ranks of a host share. Zeroed memory is a valid flag that is
/// off. If a process is killed within raise(), its text is ignored and the next process's text is used.
struct AbortFlag {
  static constexpr std::uint32_t texts = 8;
  std::atomic<std::uint32_t> writers;  // number of writers that have begun; each has a separate text
  std::atomic<std::uint32_t> state;    // 0: off. n: on, for the n-th writer's reason
  std::atomic<std::uint32_t> teller;   // 1: some rank prints the reason
  std::atomic<std::uint32_t> leaving;  // ranks about to exit because of it
  ErrorKind kinds[texts];
  char reasons[texts][1000];

  /// Turns the flag on. True for the caller whose reason is used.
  bool raise(const AbortReason& why);
  /// True for the first caller, which must print the reason. It need not be the rank that raised the flag, since that
  /// rank may continue to run.
  bool is_teller() { return teller.exchange(1) == 0; }
  bool on() const { return state != 0; }
  /// The reason; empty while the flag is off.
  AbortReason reason() const;
  /// Throws Error("what: ended because of ...") if the flag is on.
  void check(const std::string& what) const;
};

/// Identifies the memory of a process: a random number and its address in that process.
struct ProcessToken {
  int process = 0;
  const std::uint64_t* where = nullptr;  // null: others cannot reach this process
  std::uint64_t value = 0;

  /// Whether this process can read the other process's memory, and the value is there.
  bool reachable() const;
};

class ShmAllReduce;

/// All ShmAllReduce objects of a process. A wait for any operation, also of MPI, advances all of them, since other
/// ranks may need another one first. Any thread may call it.
class ShmAllReduces {
 public:
  void add(ShmAllReduce*);
  void remove(ShmAllReduce*);
  /// Copies in as much as fits, on all objects except one. True if there may be more to copy.
  bool advance(const ShmAllReduce* except = nullptr);

 private:
  std::mutex mutex_;
  std::vector<ShmAllReduce*> shm_reduces_;
};

/// The shared-memory collectives of one communicator: see the head of this file.
class ShmAllReduce : public EventCount, public std::enable_shared_from_this<ShmAllReduce> {
 public:
  static std::size_t bytes(int ranks);
  /// memory: bytes(size) bytes shared by all ranks, zeroed before first use. abort_flag must outlive this object.
  /// token: this process's if all ranks can read each other's memory; else a token without an address.
  ShmAllReduce(SharedMemory memory, AbortFlag& abort_flag, std::shared_ptr<ShmAllReduces> shm_reduces, int rank,
               int size, const ProcessToken& token);
  /// If an operation is still in progress, the other ranks' waits for it throw Error.
  ~ShmAllReduce() override;

  bool direct() const { return token_.where; }
  std::uint64_t ticket() override;
  void sleep(std::uint64_t ticket, double seconds) override;
  int yields() const override { return spins_; }
  /// Whether post() takes the call.
  bool takes(const Call&) const;
  /// Non-blocking: copies as much of x as fits; waiting threads do the rest. call: all_reduce or barrier; all_gather of
  /// the block `in` into x; reduce_scatter of `in` to the block x, which may be this rank's block of `in`.
  Work post(const Call& call, const Tensor& x, const Tensor& in = {});
  /// Compares this rank's next call, whose data take another path, with the other ranks' calls. Returns its number.
  std::uint64_t post_call(const Call& call);
  /// The ranks that have not reached the call of this number, as " for rank 3", or other detail for a message.
  std::string missing(std::uint64_t number);

 private:
  struct Slot;
  struct Head;
  /// The use of a slot: a vector, a piece of a long vector, or a call that is only announced.
  struct Piece {
    Call call;
    Tensor x, in;
    std::uint64_t first = 0;         // number of the call's first piece since construction
    char* data = nullptr;            // this rank's input
    Index count = 0, chunk = 0;      // elements; elements of each chunk but the last
    int chunks = 0;                  // 0: only announced, nothing waits for it
    int ranks = 1;                   // that process each chunk: 1, or all for what each rank reads itself
    int taken = 0;                   // if all: chunks that this rank has processed
    bool several = false;            // the call has several pieces
    std::atomic<bool> done = false;  // the result is ready
  };
  struct Waiting;
  /// One rank's entry for a piece.
  struct Entry {
    std::atomic<std::uint64_t> number,
        left;  // number of the piece it copied in, and of the piece it copied out; from 1
    Call call;
    ProcessToken token;
    char* data;
  };
  friend class ShmAllReduces;

  const Piece& piece(std::uint64_t i) const { return *pieces_[i - drained_]; }
  std::uint64_t posted() const { return drained_ + pieces_.size(); }
  Slot& slot(std::uint64_t i) const;
  char* stage(int rank, std::uint64_t i) const;
  Entry& entry(int rank, std::uint64_t i) const;
  /// True if this rank was the last to bring a vector that one rank reduces: the others sleep until the caller has
  /// reduced it or wakes them.
  bool fill();
  bool reduce();
  void reduce_staged(std::uint64_t i, const Piece&, int chunk);
  void reduce_direct(std::uint64_t i, const Piece&, int chunk);
  void read_own(std::uint64_t i, const Piece&, int chunk);
  void transfer(std::uint64_t i, int rank, Index at, void* local, std::size_t bytes, bool write);
  bool direct(const Call&) const;
  void copy_out(const Piece&);
  bool drain();
  void compare(std::uint64_t i);
  void advance();
  void advance_unless_busy();
  void wake_waiters();
  Head& head() const { return *reinterpret_cast<Head*>(memory_); }

  SharedMemory shared_;
  char* memory_;
  AbortFlag& abort_flag_;
  const std::shared_ptr<ShmAllReduces> shm_reduces_;
  const int rank_, size_, slots_;
  const int spins_;
  const ProcessToken token_;
  std::vector<char> scratch_;
  std::mutex mutex_;                           // between the threads of this process
  std::deque<std::shared_ptr<Piece>> pieces_;  // from piece drained_ on
  std::atomic<bool> busy_ = false;             // whether pieces remain to be copied in, for which other ranks may wait
  std::uint64_t filled_ = 0, drained_ = 0;     // numbers of pieces
};

}  // namespace trireme
