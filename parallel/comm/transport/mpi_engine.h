// Engine: drives the MPI operations of a process. One thread at a time calls MPI (MPI_THREAD_SERIALIZED): the thread
// that posts or waits. While operations are in progress and nothing waits, a background thread polls them, since MPI
// makes no progress by itself.
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

/// Throws Error with MPI's message unless status is success.
void ok(int status, std::string_view what);

struct Operation {
  std::string what;
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<Tensor> keep;
  std::vector<MPI_Count> counts;              // block sizes, by rank
  std::vector<MPI_Aint> offsets;              // block offsets, by rank
  MPI_Datatype type = MPI_BYTE;               // element type of a message to receive
  Index expected = -1;                        // elements of a message to receive; -1: not a receive
  std::shared_ptr<ShmAllReduce> shm;          // if set, this call is compared with other ranks' there
  std::uint64_t number = 0;                   // number of this call there
  MPI_Request comparison = MPI_REQUEST_NULL;  // gathers `calls`
  std::vector<Call> calls;                    // each rank's call; empty: not compared
  std::string error;
  std::atomic<bool> done = false;
};

/// Drives all operations of this process.
class Engine {
 public:
  /// shared: the ranks of this host share the flag.
  Engine(AbortFlag& flag, bool shared);
  ~Engine() { stop(); }

  /// For calls during shutdown: locks the mutex, but gives up after a few seconds if the thread that holds it hangs
  /// inside MPI.
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

  /// MPI's operation if it follows the rules of reduce.h, else a custom one: MPI has no sum of bf16 and f16, and its
  /// max and min may drop a NaN.
  MPI_Op op(ReduceOp op, DType t) const;
  /// Starts driving an operation. Call with the mutex held.
  void add(std::shared_ptr<Operation> operation) {
    pending_.push_back(std::move(operation));
    if (pending_.size() == 1) changed_.notify_all();
  }
  /// Whether the operation is done or the job was aborted.
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
  std::atomic<int> waiting = 0;  ///< threads that poll; while there are any, the background thread does not
  /// The shared-memory all-reduces of this process's communicators.
  const std::shared_ptr<ShmAllReduces> shm_reduces = std::make_shared<ShmAllReduces>();
  ProcessToken token;  ///< has an address if the ranks of this host can read each other's memory

 private:
  bool test();
  static bool compare(Operation&);
  void watch();

  std::array<std::array<MPI_Op, 3>, 4> own_ops_;  // f32, f64, bf16, f16; by ReduceOp
  std::vector<std::shared_ptr<Operation>> pending_;
  std::vector<std::shared_ptr<Operation>> lost_;  // MPI may still write to their tensors
  std::atomic<bool> stopped_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace trireme
