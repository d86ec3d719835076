// HostBoard: all-reduce and barrier between the processes of one host over memory that they share. Nobody polls: who
// waits sleeps on a futex, so ranks may outnumber cores. Short vectors go through it in pieces: every rank copies its
// piece in, whoever is there reduces chunks of it (in rank order: the same bits everywhere, and the same as between
// threads), every rank copies out. Of a long vector only the address goes through it: who reduces a chunk reads it
// from, and writes it to, the other processes.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>

#include "parallel/transport/call.h"
#include "parallel/transport/shared_memory.h"

namespace trireme {

/// The reason why the job was ended, in memory that all ranks of a host see. Zeroed memory is a valid alarm that is
/// off.
struct HostAlarm {
  std::atomic<std::uint32_t> state;  // 0 off, 1 being written, 2 on
  char reason[1000];

  /// True for the first caller.
  bool raise(const std::string& why);
  /// Throws Error("what: ended because of ...") if the alarm is on.
  void check(const std::string& what) const;
};

class HostBoard : public std::enable_shared_from_this<HostBoard> {
 public:
  static std::size_t bytes(int ranks);
  /// memory: bytes(size) of it, zeroed before the first rank uses it, shared by all. alarm outlives the board.
  /// direct: every rank can reach the others' memory (see reachable).
  HostBoard(SharedMemory memory, HostAlarm& alarm, int rank, int size, bool direct);

  /// True when the process of this number has this value there, and lets us read it.
  static bool reachable(int process, const std::uint64_t* where, std::uint64_t value);

  /// Non-blocking: x is copied as far as there is room; the rest is done by those who wait. kind: all_reduce or
  /// barrier.
  Work post(const Call& call, const Tensor& x);

 private:
  struct Slot;
  struct Head;
  struct Op {
    Call call;
    Tensor x;
    std::uint64_t begin = 0, end = 0;  // its pieces, counted over the life of the board
    std::atomic<bool> done = false;
  };
  struct Waiting;
  struct Piece {
    char* data;
    Index count, chunk;  // elements; of all but the last chunk
    int chunks;
    const Op* op;
    bool direct;
  };
  /// What a rank has to say of a piece.
  struct Entry {
    Call call;
    int process;
    char* data;
  };

  Piece piece(std::uint64_t i) const;
  Slot& slot(std::uint64_t i) const;
  char* stage(int rank, std::uint64_t i) const;
  Entry& entry(int rank, std::uint64_t i) const;
  void fill();
  bool reduce();
  void reduce_staged(std::uint64_t i, const Piece&, int chunk);
  void reduce_direct(std::uint64_t i, const Piece&, int chunk);
  bool direct(const Call&) const;
  bool drain();
  void compare(std::uint64_t i);
  void advance();
  void ring();
  void sleep(std::uint32_t bell);
  void wait(Op& op);
  std::string missing(const Op& op) const;

  SharedMemory shared_;
  char* memory_;
  HostAlarm& alarm_;
  const int rank_, size_, slots_;
  const int spins_;
  const bool direct_;
  std::vector<char> scratch_;
  std::mutex mutex_;  // between the threads of this process
  std::deque<std::shared_ptr<Op>> ops_;
  std::uint64_t posted_ = 0, filled_ = 0, drained_ = 0;  // pieces
};

}  // namespace trireme
