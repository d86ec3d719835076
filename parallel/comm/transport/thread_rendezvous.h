// ThreadRendezvous: the shared state behind communicators between threads: matches the calls of all ranks and carries
// them out.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/call.h"

namespace trireme {

class ThreadRendezvous;

/// What all communicators of one run share: the reason why it was ended, if it was; and the number of events so far.
struct Job final : EventCount {
  std::uint64_t ticket() override { return events; }
  void sleep(std::uint64_t ticket, double seconds) override;
  void notify();

  std::mutex mutex;
  std::string reason;
  std::atomic<bool> ended = false;
  std::vector<std::weak_ptr<ThreadRendezvous>> rendezvous;
  std::atomic<std::uint64_t> events = 0;
  std::atomic<int> sleepers = 0;
  std::mutex sleep_mutex;
  std::condition_variable happened;
};

enum Phase : int { gathering, ready, done, failed };

/// One operation whose partners have to find each other: a collective call, or a message.
struct PendingOp {
  std::atomic<int> phase = gathering;
  std::string error;
};

struct Collective : PendingOp {
  Call call;
  std::uint64_t number = 0;
  int first = -1;  // the rank that came first: its call is the one to match
  int arrived = 0;
  std::vector<View> in, out;
  std::vector<Tensor> keep;
  std::vector<bool> here;
  std::vector<Index> offsets;  // of blocks, by rank
  Index piece = 1, pieces = 0;
  std::atomic<Index> next = 0, finished = 0;
  // split
  std::vector<std::pair<int, int>> color_key;
  std::map<int, std::shared_ptr<ThreadRendezvous>> children;
};

struct PointToPoint : PendingOp {
  Tensor x;
};

class ThreadRendezvous : public std::enable_shared_from_this<ThreadRendezvous> {
 public:
  ThreadRendezvous(std::shared_ptr<Job> job, int size, std::string transport)
      : job_(std::move(job)), size_(size), transport_(std::move(transport)), spins_(size <= cores() ? 60 : 0) {}

  int size() const { return size_; }
  const std::string& transport() const { return transport_; }

  std::shared_ptr<Collective> join(int rank, std::uint64_t number, const Call& call, const Tensor& out,
                                   const Tensor& in, std::span<const Index> counts);
  std::shared_ptr<PointToPoint> post(int from, int to, int tag, const Tensor& x, bool is_send);
  int probe(int to, int tag, int first);
  bool wait(PendingOp&, Collective*, const Call&, double seconds);
  std::string late(const Collective*, const Call&, int rank, double seconds);
  bool progress(PendingOp&, Collective*);
  void make_progress(Collective&);
  std::shared_ptr<ThreadRendezvous> split(int rank, std::uint64_t number, int color, int key, int& new_rank);
  void end(const std::string& reason);
  std::string ended() const;
  void notify() {
    { std::lock_guard lock(mutex_); }
    announce();
  }
  Job& job() { return *job_; }
  static void enlist(const std::shared_ptr<ThreadRendezvous>& rendezvous) {
    std::lock_guard lock(rendezvous->job_->mutex);
    std::erase_if(rendezvous->job_->rendezvous, [](auto& h) { return h.expired(); });
    rendezvous->job_->rendezvous.push_back(rendezvous);
  }

 private:
  std::shared_ptr<Collective> register_arrival(std::uint64_t number, int rank, const Call&, const Tensor& out,
                                               const Tensor& in);
  void run(Collective&, Index begin, Index end);
  void finish(Collective&);
  /// To the waits for any of several operations, too.
  void announce() {
    changed_.notify_all();
    job_->notify();
  }

  std::shared_ptr<Job> job_;
  const int size_;
  const std::string transport_;
  const int spins_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<Collective>> open_;
  struct Box {
    std::deque<std::shared_ptr<PointToPoint>> sends, recvs;
  };
  std::map<std::array<int, 3>, Box> mailboxes_;  // by receiver, tag, sender
};

}  // namespace trireme
