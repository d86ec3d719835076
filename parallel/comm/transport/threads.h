// Communicators between threads of this process.
#pragma once
#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"

namespace trireme {

class ThreadRendezvous;

/// A rank that is a thread. A collective is done by the ranks that wait for it: they take pieces of the buffers, reduce
/// each over all ranks in rank order (one result, the same bits on every rank) and write it to all. So nothing runs in
/// the background, a rank's wait does not need the waits of its peers, and waits may be in any order.
class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadRendezvous> rendezvous, int rank);
  int rank() const override { return rank_; }
  int size() const override;
  std::string transport() const override;
  Work start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) override;
  int probe(int tag, int first) override;
  EventCount* events() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(const AbortReason& reason) override;
  AbortReason ended() const override;

 protected:
  /// The result of split(): this rank in the new communicator, and the ranks of this communicator that are its members,
  /// in its order.
  struct Part {
    std::shared_ptr<ThreadRendezvous> rendezvous;
    std::vector<int> members;
    int rank;
  };
  Part part(int color, int key);

 private:
  std::shared_ptr<ThreadRendezvous> rendezvous_;
  int rank_;
  std::uint64_t calls_ = 0;
};

/// The shared state of the communicators of `ranks` threads, for a separate run. Throws Error for fewer than one.
std::shared_ptr<ThreadRendezvous> thread_rendezvous(int ranks, const std::string& transport = "threads");
/// One communicator for each of `ranks` threads.
std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks);
/// The communicator of a world of one rank.
std::unique_ptr<Communicator> single_communicator();

}  // namespace trireme
