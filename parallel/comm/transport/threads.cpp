#include "parallel/comm/transport/threads.h"

#include <cstring>
#include <exception>

#include "parallel/comm/transport/thread_rendezvous.h"

namespace trireme {
namespace {

struct RendezvousWork : Work::State {
  RendezvousWork(std::shared_ptr<ThreadRendezvous> h, std::shared_ptr<PendingOp> m, Collective* c, int r,
                 const Call& what)
      : rendezvous(std::move(h)), meeting(std::move(m)), collective(c), rank(r), call(what) {}
  ~RendezvousWork() override {
    // On the way out of an error the partners may never come; the meeting keeps the tensors for those who still use
    // them.
    if (meeting->phase != Phase::done) settle();
  }
  bool wait(double seconds) override { return rendezvous->wait(*meeting, collective, call, seconds); }
  bool done() override { return rendezvous->progress(*meeting, collective); }
  std::string late(double seconds) override { return rendezvous->late(collective, call, rank, seconds); }
  EventCount* events() override { return &rendezvous->job(); }

  std::shared_ptr<ThreadRendezvous> rendezvous;
  std::shared_ptr<PendingOp> meeting;
  Collective* collective;  // meeting, if it is one
  int rank;
  Call call;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadRendezvous> rendezvous, int rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->size(); }
  std::string transport() const override { return rendezvous_->transport(); }
  Work start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) override {
    if (call.kind == CallKind::send)
      return under_way(rendezvous_->post(rank_, call.root, call.tag, in, true), {}, call);
    if (call.kind == CallKind::recv)
      return under_way(rendezvous_->post(call.root, rank_, call.tag, out, false), {}, call);
    auto collective = rendezvous_->join(rank_, calls_++, call, out, in, counts);
    return under_way(collective, collective.get(), call);
  }
  int probe(int tag, int first) override { return rendezvous_->probe(rank_, tag, first); }
  EventCount* events() override { return &rendezvous_->job(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    int new_rank = 0;
    auto rendezvous = rendezvous_->split(rank_, calls_++, color, key, new_rank);
    return std::make_unique<ThreadCommunicator>(std::move(rendezvous), new_rank);
  }
  void abort(const std::string& reason) override { rendezvous_->end(reason); }
  std::string ended() const override { return rendezvous_->ended(); }

 private:
  Work under_way(std::shared_ptr<PendingOp> m, Collective* c, const Call& call) {
    if (m->phase == Phase::done) return {};
    return Work(std::make_shared<RendezvousWork>(rendezvous_, std::move(m), c, rank_, call));
  }

  std::shared_ptr<ThreadRendezvous> rendezvous_;
  int rank_;
  std::uint64_t calls_ = 0;
};

std::vector<std::unique_ptr<Communicator>> communicators(int ranks, const std::string& transport) {
  check(ranks >= 1, "ranks", "got {}, expected at least 1", ranks);
  auto rendezvous = std::make_shared<ThreadRendezvous>(std::make_shared<Job>(), ranks, transport);
  ThreadRendezvous::enlist(rendezvous);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<ThreadCommunicator>(rendezvous, r));
  return all;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks) { return communicators(ranks, "threads"); }
std::unique_ptr<Communicator> single_communicator() { return std::move(communicators(1, "single")[0]); }

}  // namespace trireme
