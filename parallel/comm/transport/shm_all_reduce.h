// ShmAllReduce: all-reduce, small all-gather and barrier between the processes of one host in shared memory. A waiting
// rank sleeps on a futex, so ranks may outnumber cores. Short vectors are processed in pieces: every rank copies its
// piece in, any rank that is there reduces chunks (in rank order: the same bits on every rank, and the same as between
// threads), every rank copies the result out. Of a long vector only the address is shared: the rank that reduces a
// chunk reads it from the other processes and writes it back to them. Collectives that MPI carries out are only
// announced here, so that ranks that call different ones are told so.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

#include "parallel/comm/call.h"
#include "parallel/comm/transport/shared_memory.h"

namespace trireme {

/// The reason why the job was ended, in memory that all ranks of a host see. Zeroed memory is a valid flag that is
/// off. A process may die at any point of raise(): its text is then not used, and the next one's is.
struct AbortFlag {
  static constexpr std::uint32_t texts = 8;
  std::atomic<std::uint32_t> writers;  // how many have begun; each writes a text of its own
  std::atomic<std::uint32_t> state;    // 0: off. n: on, for the n-th writer's reason
  std::atomic<std::uint32_t> teller;   // 1: a rank has taken it on itself to print the reason
  std::atomic<std::uint32_t> leaving;  // ranks about to end because of it
  ErrorKind kinds[texts];
  char reasons[texts][1000];

  /// True for the first whose reason counts.
  bool raise(const AbortReason& why);
  /// True for the first to ask: it prints what happened. Not always the rank that raised the flag, since that may live
  /// on.
  bool is_teller() { return teller.exchange(1) == 0; }
  bool on() const { return state != 0; }
  /// Empty while it is off.
  AbortReason reason() const;
  /// Throws Error("what: ended because of ...") if the flag is on.
  void check(const std::string& what) const;
};

/// What tells the memory of a process from that of any other: a number drawn at random, and where in it that lies.
struct ProcessToken {
  int process = 0;
  const std::uint64_t* where = nullptr;  // null: others cannot reach this process
  std::uint64_t value = 0;

  /// True when the process of this number has this value there, and lets us read it.
  bool reachable() const;
};

class ShmAllReduce;

/// All ShmAllReduce of a process: a wait for one operation, of any of these or of MPI, moves all of these along, since
/// other ranks may wait for those first. From any thread.
class ShmAllReduces {
 public:
  void add(ShmAllReduce*);
  void remove(ShmAllReduce*);
  /// Copies in what there is room for now, on all but one. True if there may be more.
  bool advance(const ShmAllReduce* except = nullptr);

 private:
  std::mutex mutex_;
  std::vector<ShmAllReduce*> shm_reduces_;
};

class ShmAllReduce : public EventCount, public std::enable_shared_from_this<ShmAllReduce> {
 public:
  static std::size_t bytes(int ranks);
  /// memory: bytes(size) of it, zeroed before the first rank uses it, shared by all. abort_flag outlives it.
  /// sign: this process's, if all ranks can reach each other's memory; else one without a place.
  ShmAllReduce(SharedMemory memory, AbortFlag& abort_flag, std::shared_ptr<ShmAllReduces> shm_reduces, int rank,
               int size, const ProcessToken& token);
  /// Where an operation is still under way, the other ranks' waits for it throw Error.
  ~ShmAllReduce() override;

  bool direct() const { return token_.where; }
  std::uint64_t ticket() override;
  void sleep(std::uint64_t ticket, double seconds) override;
  int yields() const override { return spins_; }
  /// Non-blocking: x is copied as far as there is room; the rest is done by those who wait. kind: all_reduce, barrier,
  /// or all_gather of a block `in` that it gathers, with x for what comes.
  Work post(const Call& call, const Tensor& x, const Tensor& in = {});
  /// Whether blocks of so many bytes are small enough to be gathered.
  static bool gathers(Index bytes);
  /// Compares this rank's next call, which moves its data elsewhere, with the other ranks'. Returns its number.
  std::uint64_t post_call(const Call& call);
  /// Which ranks have not come to the call of this number, or to one before it: " for rank 3"; or what else there is to
  /// say.
  std::string missing(std::uint64_t number);

 private:
  struct Slot;
  struct Head;
  /// What takes a slot: a vector, one of the pieces of a long one, or a call that is only announced.
  struct Piece {
    Call call;
    Tensor x, in;
    std::uint64_t first = 0;         // piece of its call, counted since construction
    char* data = nullptr;            // what this rank brings
    Index count = 0, chunk = 0;      // elements; of all but the last chunk
    int chunks = 0;                  // 0: announced, and nobody waits for it
    bool several = false;            // pieces, of this call
    std::atomic<bool> done = false;  // the result is there
  };
  struct Waiting;
  /// What a rank has to say of a piece.
  struct Entry {
    std::atomic<std::uint64_t> number, left;  // of the piece that it brought, and of the one it took; from 1 on
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
  /// True when this rank was the last to bring a vector that is reduced in one go: the others sleep until the caller
  /// has reduced it, or rings.
  bool fill();
  bool reduce();
  void reduce_staged(std::uint64_t i, const Piece&, int chunk);
  void reduce_direct(std::uint64_t i, const Piece&, int chunk);
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
  std::deque<std::shared_ptr<Piece>> pieces_;  // from drained_ on
  std::atomic<bool> busy_ = false;             // there are pieces to copy in: others may wait for that
  std::uint64_t filled_ = 0, drained_ = 0;     // pieces
};

}  // namespace trireme
