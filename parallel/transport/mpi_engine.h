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

#include "framework/tensor.h"
#include "parallel/reduce.h"
#include "parallel/transport/host_board.h"

namespace trireme {

/// Throws Error in MPI's words unless status says success.
void ok(int status, std::string_view what);

struct Operation {
  std::string what;
  std::vector<MPI_Request> requests;
  std::vector<Tensor> keep;
  Tensor result, target;  // when set: result is copied to target at the end
  std::string error;
  std::atomic<bool> done = false;
};

/// Drives all operations of this process.
class Engine {
 public:
  explicit Engine(HostAlarm* alarm);
  ~Engine() { stop(); }

  void stop() {
    {
      std::lock_guard lock(mutex);
      stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  bool stopped() const { return stopped_; }

  MPI_Op op(ReduceOp op, DType t) const {
    if (is_narrow(t)) return narrow_ops_[t == DType::f16][static_cast<std::size_t>(op)];
    return op == ReduceOp::sum ? MPI_SUM : op == ReduceOp::max ? MPI_MAX : MPI_MIN;
  }
  /// With the mutex held.
  void add(std::shared_ptr<Operation> operation) {
    pending_.push_back(std::move(operation));
    if (pending_.size() == 1) changed_.notify_all();
  }
  bool poll(const Operation& operation) {
    if (operation.done) return true;
    std::lock_guard lock(mutex);
    test();
    return operation.done;
  }
  void wait(const Operation&);
  HostAlarm* alarm() const { return alarm_; }

  std::mutex mutex;     ///< held for every call of MPI
  bool direct = false;  ///< the ranks of this host can reach each other's memory

 private:
  bool test();
  void watch();

  HostAlarm* alarm_;
  std::array<std::array<MPI_Op, 3>, 2> narrow_ops_;  // bf16, f16
  std::vector<std::shared_ptr<Operation>> pending_;
  std::atomic<int> waiting_ = 0;
  std::atomic<bool> stopped_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace trireme
