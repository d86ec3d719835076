// Communicators in virtual time: collectives by the communicators between threads, messages by way of copies, and
// VirtualTime says when.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "parallel/comm/fnv.h"
#include "parallel/comm/transport/threads.h"
#include "parallel/comm/transport/virtual_time.h"

namespace trireme {
namespace {

/// What is one rank's, of all its communicators.
struct RankClock final : VirtualClock, EventCount {
  RankClock(std::shared_ptr<VirtualTime> t, int r) : time(std::move(t)), rank(r) {}
  Nanoseconds now() const override { return time->now(rank); }
  const Cluster& cluster() const override { return time->cluster(); }
  void advance(Nanoseconds by) override { time->advance(rank, by); }
  VirtualState save() override { return time->save(rank); }
  void restore(const VirtualState& state) override { time->restore(rank, state); }

  void set_price(std::function<Nanoseconds(const Link&)> of) override { price = std::move(of); }

  std::uint64_t ticket() override { return 0; }
  void sleep(std::uint64_t, double) override {}
  bool simulated() const override { return true; }
  bool poll(double seconds, const std::function<bool()>& ready) override { return time->poll(rank, seconds, ready); }

  std::shared_ptr<VirtualTime> time;
  int rank;                                       // of the world
  std::function<Nanoseconds(const Link&)> price;  // of the next collective
};

void copy_bytes(const Tensor& to, const Tensor& from) {
  if (to.numel() > 0) std::memcpy(to.view().data, from.view().data, static_cast<std::size_t>(to.view().bytes()));
}

struct VirtualWork final : Work::State {
  VirtualWork(std::shared_ptr<RankClock> c, VirtualTime::Op o, const Call& what, int rank, int ranks)
      : clock(std::move(c)), op(std::move(o)), call(what), own(rank), size(ranks) {}
  bool wait(double seconds) override {
    if (!op) return true;
    try {
      if (!clock->time->wait(clock->rank, op, seconds)) return false;
    } catch (...) {
      give_up();
      op = nullptr;
      throw;
    }
    const VirtualTime::Op ended = std::exchange(op, nullptr);
    inner.wait();
    if (call.kind != CallKind::recv) return true;
    const Tensor& sent = ended->payload;
    check(sent.dtype() == out.dtype() && sent.numel() == out.numel(), "recv",
          "rank {} sent {} {} with tag {}, rank {} expected {} {}", call.root, sent.numel(), sent.dtype(), call.tag,
          own, out.numel(), out.dtype());
    copy_bytes(out, sent);
    return true;
  }
  bool done() override { return !op || clock->time->done(clock->rank, op); }
  std::string late(double seconds) override {
    return inner.state() ? inner.state()->late(seconds)
                         : late_text(fmt::format("{}: rank {} of {} has", to_string(call), own, size), seconds);
  }
  EventCount* events() override { return clock.get(); }
  void give_up() override {
    State::give_up();
    if (inner.state()) inner.state()->give_up();
  }

  std::shared_ptr<RankClock> clock;
  VirtualTime::Op op;  // null: waited for
  Call call;
  int own, size;  // of the communicator
  Work inner;     // of a collective
  Tensor out;     // of a receive
};

class VirtualCommunicator final : public Communicator {
 public:
  VirtualCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<RankClock> rank_clock, RankList ranks,
                      std::uint64_t id)
      : inner_(std::move(inner)),
        clock_(std::move(rank_clock)),
        ranks_(std::move(ranks)),
        link_(clock_->cluster().link(*ranks_)),
        id_(id) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string transport() const override { return "virtual time"; }
  VirtualClock* clock() override { return clock_.get(); }

  Work start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) override {
    VirtualTime& time = *clock_->time;
    const int world_rank = clock_->rank;
    VirtualTime::Op op;
    Work inner;
    if (call.kind == CallKind::send) {
      const Tensor copy = Tensor::empty({in.numel()}, in.dtype());
      copy_bytes(copy, in);
      op = time.send(world_rank, id_, ranks_, call, rank(), copy);
    } else if (call.kind == CallKind::recv) {
      op = time.receive(world_rank, id_, ranks_, call, rank());
    } else {
      inner = inner_->start(call, out, in, counts);
      op = meet_all(call, {0, 0, rank()});
    }
    auto work = std::make_shared<VirtualWork>(clock_, std::move(op), call, rank(), size());
    work->inner = std::move(inner);
    if (call.kind == CallKind::recv) work->out = out;
    return Work(std::move(work));
  }
  int probe(int tag, int first) override { return clock_->time->probe(clock_->rank, id_, rank(), tag, first); }
  EventCount* events() override { return clock_.get(); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const Call call{CallKind::split};
    const auto op = meet_all(call, {color, key, rank()});
    Work(std::make_shared<VirtualWork>(clock_, op, call, rank(), size())).wait();
    std::vector<std::array<int, 2>> members;  // key, rank
    for (const auto& [its_color, its_key, r] : op->callers)
      if (its_color == color) members.push_back({its_key, r});
    std::ranges::sort(members);
    std::vector<int> ranks;
    for (const auto& member : members) ranks.push_back((*ranks_)[static_cast<std::size_t>(member[1])]);
    const auto mine = std::ranges::find(members, std::array{key, rank()}) - members.begin();
    Fnv id;
    id.add(id_, splits_++, color);
    return std::make_unique<VirtualCommunicator>(std::move(op->parts.at(color)[static_cast<std::size_t>(mine)]), clock_,
                                                 std::make_shared<const std::vector<int>>(std::move(ranks)),
                                                 id.value());
  }
  void abort(const std::string& reason) override {
    clock_->time->end(reason);
    inner_->abort(reason);
  }
  std::string ended() const override { return clock_->time->ended(); }

 private:
  VirtualTime::Op meet_all(const Call& call, const std::array<int, 3>& caller) {
    auto op = std::make_shared<VirtualOp>();
    op->call = call, op->ranks = ranks_;
    const auto price = std::exchange(clock_->price, nullptr);
    // At least one latency, else lookahead_ (VirtualTime::schedule) would let a rank look too early.
    op->time = price ? std::max(price(link_), message_time(link_, 0))
                     : collective_time(link_, call.kind, size(), call.count * size_of(call.type));
    if (call.kind == CallKind::split) op->then = make_parts;
    return clock_->time->collective(clock_->rank, id_, calls_++, std::move(op), caller);
  }
  static void make_parts(VirtualOp& op) {
    std::map<int, int> sizes;
    for (const auto& caller : op.callers) ++sizes[caller[0]];
    for (const auto& [color, size] : sizes) op.parts[color] = thread_communicators(size);
  }

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<RankClock> clock_;
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
  auto inner = thread_communicators(ranks);
  VirtualRanks all{std::make_shared<VirtualTime>(ranks, cluster), {}};
  std::vector<int> numbers;
  for (int r = 0; r < ranks; ++r) numbers.push_back(r);
  const auto list = std::make_shared<const std::vector<int>>(std::move(numbers));
  for (int r = 0; r < ranks; ++r)
    all.communicators.push_back(std::make_unique<VirtualCommunicator>(
        std::move(inner[static_cast<std::size_t>(r)]), std::make_shared<RankClock>(all.time, r), list, 0));
  return all;
}

}  // namespace trireme
