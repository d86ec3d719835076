// What drives the MPI operations of a process. MPI is called by one thread at a time (MPI_THREAD_SERIALIZED): by
// whoever posts or waits, and, while operations are under way and nobody waits, by a thread that looks at them every
// now and then; MPI makes no progress by itself.
#pragma once
#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "framework/tensor/tensor.h"
#include "parallel/comm/call.h"
#include "parallel/comm/reduce.h"
#include "parallel/comm/transport/shm_all_reduce.h"

namespace trireme {

/// Throws Error in MPI's words unless status says success.
void ok(int status, std::string_view what);

struct Operation {
  std::string what;
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<Tensor> keep;
  std::vector<MPI_Count> counts;              // of blocks, by rank,
  std::vector<MPI_Aint> offsets;              // and where they begin
  MPI_Datatype type = MPI_BYTE;               // of a message that is received,
  Index expected = -1;                        // and its elements; -1: none is
  std::shared_ptr<ShmAllReduce> shm;          // when set: other ranks have left word there, too,
  std::uint64_t number = 0;                   // under this number
  MPI_Request comparison = MPI_REQUEST_NULL;  // that makes
  std::vector<Call> calls;                    // whole: what each rank has called; empty: not compared
  std::string error;
  std::atomic<bool> done = false;
};

/// Drives all operations of this process.
class Engine {
 public:
  /// shared: the ranks of this host have the flag in common.
  Engine(AbortFlag& flag, bool shared);
  ~Engine() { stop(); }

  /// For calls on the way out: the mutex, unless it does not come free within seconds since the thread that holds it
  /// hangs within MPI.
  std::unique_lock<std::mutex> lock_at_last();
  void stop() {
    {
      std::lock_guard lock(mutex);
      stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  bool stopped() const { return stopped_; }

  /// MPI's own operation where it does what reduce.h says: it has no sum of bf16 and f16, and its max and min keep a
  /// NaN or not by the order of the ranks.
  MPI_Op op(ReduceOp op, DType t) const;
  /// With the mutex held.
  void add(std::shared_ptr<Operation> operation) {
    pending_.push_back(std::move(operation));
    if (pending_.size() == 1) changed_.notify_all();
  }
  /// Whether it is done, or the job was ended.
  bool poll(const Operation& operation) {
    if (operation.done) return true;
    shm_reduces->advance();
    std::lock_guard lock(mutex);
    test();
    return operation.done || abort_flag.on();
  }
  std::string late(const Operation&, double seconds);

  AbortFlag& abort_flag;
  const bool flag_is_shared;
  std::mutex mutex;              ///< held for every call of MPI
  std::atomic<int> waiting = 0;  ///< threads that poll by themselves: the background need not
  /// Of this process's communicators.
  const std::shared_ptr<ShmAllReduces> shm_reduces = std::make_shared<ShmAllReduces>();
  ProcessToken token;  ///< with a place if the ranks of this host can reach each other's memory

 private:
  bool test();
  static bool compare(Operation&);
  void watch();

  std::array<std::array<MPI_Op, 3>, 4> own_ops_;  // f32, f64, bf16, f16; by ReduceOp
  std::vector<std::shared_ptr<Operation>> pending_;
  std::vector<std::shared_ptr<Operation>> lost_;  // MPI may yet write to their tensors
  std::atomic<bool> stopped_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace trireme
