#include "parallel/comm/transport/threads.h"

#include <cstring>
#include <exception>

#include "parallel/comm/transport/thread_rendezvous.h"

namespace trireme {
namespace {

struct RendezvousWork : Work::State {
  RendezvousWork(std::shared_ptr<ThreadRendezvous> h, std::shared_ptr<PendingOp> m, Collective* c, int r, std::string w)
      : rendezvous(std::move(h)), meeting(std::move(m)), collective(c), rank(r), what(std::move(w)) {}
  ~RendezvousWork() override {
    // On the way out of an error the partners may never come; the meeting keeps the tensors for those who still use
    // them.
    if (!waited) settle();
  }
  void wait() override {
    waited = true;
    rendezvous->wait(*meeting, collective, rank, what);
  }
  bool done() override { return rendezvous->progress(*meeting, collective); }

  std::shared_ptr<ThreadRendezvous> rendezvous;
  std::shared_ptr<PendingOp> meeting;
  Collective* collective;  // meeting, if it is one
  int rank;
  std::string what;
  bool waited = false;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadRendezvous> rendezvous, int rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->size(); }
  std::string transport() const override { return rendezvous_->transport(); }

  Work all_reduce(const Tensor& x, ReduceOp op) override {
    auto call = all_reduce_call(x, op);
    return size() == 1 ? Work{} : collective(call, x, {});
  }
  Work reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    return collective(reduce_scatter_call(out, in, op, size()), out, in);
  }
  Work all_gather(const Tensor& out, const Tensor& in) override {
    return collective(all_gather_call(out, in, size()), out, in);
  }
  Work broadcast(const Tensor& x, int root) override { return collective(broadcast_call(x, root, size()), x, {}); }
  Work all_to_all(const Tensor& out, const Tensor& in) override {
    return collective(all_to_all_call(out, in, size()), out, in);
  }
  Work send(const Tensor& x, int to, int tag) override {
    check_message("send", x, to, tag, size());
    return message(rendezvous_->post(rank_, to, tag, x, true),
                   fmt::format("send of {} {} to rank {}", x.numel(), x.dtype(), to));
  }
  Work recv(const Tensor& x, int from, int tag) override {
    check_message("recv", x, from, tag, size());
    return message(rendezvous_->post(from, rank_, tag, x, false),
                   fmt::format("recv of {} {} from rank {}", x.numel(), x.dtype(), from));
  }
  void barrier() override { collective({}, {}, {}).wait(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    int new_rank = 0;
    auto rendezvous = rendezvous_->split(rank_, calls_++, color, key, new_rank);
    return std::make_unique<ThreadCommunicator>(std::move(rendezvous), new_rank);
  }
  void abort(const std::string& reason) override { rendezvous_->end(reason); }
  std::string ended() const override { return rendezvous_->ended(); }

 private:
  Work collective(const Call& call, const Tensor& out, const Tensor& in) {
    auto c = rendezvous_->join(rank_, calls_++, call, out, in);
    if (c->phase == done) return {};
    return Work(std::make_shared<RendezvousWork>(rendezvous_, c, c.get(), rank_, to_string(call)));
  }
  Work message(std::shared_ptr<PointToPoint> m, std::string what) {
    if (m->phase == done) return {};
    return Work(std::make_shared<RendezvousWork>(rendezvous_, std::move(m), nullptr, rank_, std::move(what)));
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
