// Communicators in virtual time. Collectives use the communicators between threads, messages are copied, and
// VirtualTime computes when they end.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "parallel/comm/fnv.h"
#include "parallel/comm/transport/threads.h"
#include "parallel/comm/transport/virtual_time.h"

namespace trireme {
namespace {

void copy_message(const Tensor& to, const Tensor& from) {
  if (to.numel() > 0) std::memcpy(to.view().data, from.view().data, static_cast<std::size_t>(to.view().bytes()));
}

struct VirtualWork final : Work::State {
  VirtualWork(std::shared_ptr<VirtualTime> t, VirtualTime::Rank& r, const Call& what, int rank, int ranks)
      : time(std::move(t)), clock(r), call(what), own(rank), size(ranks) {}
  bool wait(double seconds) override {
    if (!op) return true;
    try {
      if (!time->wait(clock, op, seconds)) return false;
    } catch (...) {
      give_up();
      throw;
    }
    const VirtualTime::Op ended = std::exchange(op, nullptr);
    inner.wait();
    if (call.kind != CallKind::recv) return true;
    const Tensor& sent = ended->payload;
    check(sent.dtype() == out.dtype() && sent.numel() == out.numel(), ErrorKind::communicator, "recv",
          "rank {} sent {} {} with tag {}, rank {} expected {} {}", call.root, sent.numel(), sent.dtype(), call.tag,
          own, out.numel(), out.dtype());
    copy_message(out, sent);
    return true;
  }
  bool done() override { return !op || time->done(clock, op); }
  std::string late(double seconds) override {
    return inner.state() ? inner.state()->late(seconds)
                         : late_text(fmt::format("{}: rank {} of {} has", to_string(call), own, size), seconds);
  }
  EventCount* events() override { return &clock; }
  void give_up() override {
    State::give_up();
    if (inner.state()) inner.state()->give_up();
  }

  std::shared_ptr<VirtualTime> time;
  VirtualTime::Rank& clock;
  Call call;
  int own, size;       // of the communicator
  VirtualTime::Op op;  // null: waited for
  Work inner;          // of a collective
  Tensor out;          // of a receive
};

class VirtualCommunicator final : public ThreadCommunicator {
 public:
  VirtualCommunicator(std::shared_ptr<ThreadRendezvous> rendezvous, int rank, std::shared_ptr<VirtualTime> time,
                      VirtualTime::Rank& its_clock, RankList ranks, std::uint64_t id)
      : ThreadCommunicator(std::move(rendezvous), rank),
        time_(std::move(time)),
        clock_(its_clock),
        ranks_(std::move(ranks)),
        link_(clock_.cluster().link(*ranks_)),
        id_(id) {}
  std::string transport() const override { return "virtual time"; }
  VirtualClock* clock() override { return &clock_; }
  EventCount* events() override { return &clock_; }

  Work start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) override {
    auto work = std::make_shared<VirtualWork>(time_, clock_, call, rank(), size());
    if (call.kind == CallKind::send) {
      const Tensor copy = Tensor::empty({in.numel()}, in.dtype());
      copy_message(copy, in);
      work->op = time_->send(clock_, id_, ranks_, rank(), call, copy);
    } else if (call.kind == CallKind::recv) {
      work->out = out;
      work->op = time_->receive(clock_, id_, ranks_, rank(), call);
    } else {
      work->inner = ThreadCommunicator::start(call, out, in, counts);
      work->op = time_->collective(clock_, id_, calls_++,
                                   std::make_shared<VirtualTime::Operation>(
                                       VirtualTime::Operation{.call = call, .ranks = ranks_, .time = time_of(call)}));
    }
    return Work(std::move(work));
  }
  int probe(int tag, int first) override { return time_->probe(clock_, id_, rank(), tag, first); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    Part mine = part(color, key);
    std::vector<int> ranks;
    for (const int member : mine.members) ranks.push_back((*ranks_)[static_cast<std::size_t>(member)]);
    Fnv id;
    id.add(id_, splits_++, color);
    return std::make_unique<VirtualCommunicator>(std::move(mine.rendezvous), mine.rank, time_, clock_,
                                                 std::make_shared<const std::vector<int>>(std::move(ranks)),
                                                 id.value());
  }
  void abort(const AbortReason& reason) override {
    time_->end(reason);
    ThreadCommunicator::abort(reason);
  }
  AbortReason ended() const override { return time_->ended(); }

 private:
  /// At least one latency: otherwise lookahead_ (VirtualTime::schedule) would let a rank look too early.
  Nanoseconds time_of(const Call& call) {
    if (const auto price = std::exchange(clock_.price, nullptr)) return std::max(price(link_), message_time(link_, 0));
    return collective_time(link_, call.kind, size(), call.count * size_of(call.type));
  }

  std::shared_ptr<VirtualTime> time_;
  VirtualTime::Rank& clock_;
  RankList ranks_;
  const Link link_;
  std::uint64_t id_;
  std::uint64_t calls_ = 0;
  int splits_ = 0;
};

}  // namespace

VirtualRanks virtual_ranks(int ranks, const Cluster& cluster) {
  validate(cluster);
  check(ranks <= cluster.devices(), "virtual time", "{} ranks do not fit on the {} devices of the cluster", ranks,
        cluster.devices());
  const auto rendezvous = thread_rendezvous(ranks);
  VirtualRanks all{std::make_shared<VirtualTime>(ranks, cluster), {}};
  for (int r = 0; r < ranks; ++r)
    all.communicators.push_back(
        std::make_unique<VirtualCommunicator>(rendezvous, r, all.time, all.time->at(r), all.time->all(), 0));
  return all;
}

}  // namespace trireme
