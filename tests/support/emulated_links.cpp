#include "tests/support/emulated_links.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <time.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "kernels/core/runtime.h"
#include "kernels/core/thread.h"
#include "parallel/comm/call.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/fnv.h"
#include "parallel/comm/transport/threads.h"

namespace trireme::test {
namespace {

using RankList = std::shared_ptr<const std::vector<int>>;  // of the world, by rank of a communicator

constexpr Nanoseconds second = 1000000000;
Nanoseconds time_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * second + t.tv_nsec;
}

void copy_elements(const Tensor& to, const Tensor& from) {
  if (to.numel() > 0) std::memcpy(to.view().data, from.view().data, static_cast<std::size_t>(to.view().bytes()));
}

struct Queue;
/// An operation under way.
struct Operation {
  RankList ranks = {};       // their links carry it; of a receive: none
  Nanoseconds time = 0;      // that it takes
  Nanoseconds start = 0;     // not before
  std::size_t started = 0;   // by so many ranks
  std::size_t first_of = 0;  // of so many ranks' links
  bool resolved = false;     // end is known
  Nanoseconds end = 0;
  Tensor payload = {};       // of a message, and of a receive that has got it
  Queue* arrives = nullptr;  // of a message
};
using Op = std::shared_ptr<Operation>;
/// Of one sender, receiver and tag: messages that nobody has asked for, or receives that wait for one.
struct Queue {
  int to = 0;  // rank of the world
  std::deque<Op> messages, receives;
};

/// The links of all ranks.
class Links {
 public:
  Links(int ranks, const Cluster& cluster) : cluster_(cluster), ranks_(static_cast<std::size_t>(ranks)) {}
  const Cluster& cluster() const { return cluster_; }
  EmulatedClock& clock(int rank) { return *at(rank).clock; }
  /// By the thread of the rank.
  void begin(int rank) { at(rank).clock.emplace(); }

  Op collective(int rank, std::uint64_t communicator, std::uint64_t number, Operation made) {
    const std::lock_guard lock(mutex_);
    const auto slot = open_.try_emplace({communicator, number}).first;
    if (!slot->second) slot->second = std::make_shared<Operation>(std::move(made));
    const Op op = slot->second;
    if (++op->started == op->ranks->size()) open_.erase(slot);
    enqueue(rank, op);
    return op;
  }
  Op send(int rank, std::uint64_t communicator, const RankList& all, int own, const Call& call, Operation made) {
    const std::lock_guard lock(mutex_);
    Queue& queue = queues_[{communicator, call.root, call.tag, own}];
    queue.to = (*all)[static_cast<std::size_t>(call.root)];
    made.ranks = std::make_shared<const std::vector<int>>(1, rank);
    made.arrives = &queue;
    const Op op = std::make_shared<Operation>(std::move(made));
    enqueue(rank, op);
    return op;
  }
  Op receive(int rank, std::uint64_t communicator, int own, const Call& call) {
    const std::lock_guard lock(mutex_);
    const Op op = std::make_shared<Operation>(Operation{.start = clock(rank).now()});
    Queue& queue = queues_[{communicator, own, call.tag, call.root}];
    queue.to = rank;
    queue.receives.push_back(op);
    match(queue);
    return op;
  }
  int probe(std::uint64_t communicator, int own, int tag, int first) {
    const std::lock_guard lock(mutex_);
    const Nanoseconds now = EmulatedClock::real();  // who waits for what it finds goes on from its end
    int found = -1;
    for (auto at = queues_.lower_bound({communicator, own, tag, 0}); at != queues_.end(); ++at) {
      const auto& [key, queue] = *at;
      if (std::tie(std::get<0>(key), std::get<1>(key), std::get<2>(key)) != std::tie(communicator, own, tag)) break;
      const int from = std::get<3>(key);
      if (queue.messages.empty() || queue.messages.front()->end > now) continue;
      if (found < 0 || (found < first && from >= first)) found = from;
    }
    return found;
  }
  bool done(const Op& op) {
    const std::lock_guard lock(mutex_);
    return !reason_.empty() || (op->resolved && op->end <= EmulatedClock::real());
  }
  /// Sleeps until it has ended; false: its end is not known after so many seconds.
  bool wait(int rank, const Op& op, double seconds) {
    std::unique_lock lock(mutex_);
    const auto known = [&] { return op->resolved || !reason_.empty(); };
    if (!at(rank).changed.wait_for(lock, std::chrono::duration<double>(seconds), known)) return false;
    if (!op->resolved) fail_ended("emulation", reason_);
    lock.unlock();
    clock(rank).sleep_until(op->end);
    return true;
  }
  void end(const AbortReason& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    for (Rank& r : ranks_) r.changed.notify_one();
  }
  AbortReason ended() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  struct Rank {
    std::optional<EmulatedClock> clock;
    Nanoseconds free = 0;                          // its link, of what is resolved
    std::deque<std::pair<Op, Nanoseconds>> queue;  // of its link, with the times when they were started
    std::condition_variable changed;
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void take_link(Rank& r, std::vector<Op>& ready) {
    const auto& [op, started] = r.queue.front();
    op->start = std::max({op->start, started, r.free});
    if (++op->first_of == op->ranks->size()) ready.push_back(op);
  }
  void enqueue(int rank, const Op& op) {
    Rank& r = at(rank);
    r.queue.emplace_back(op, r.clock->now());
    if (r.queue.size() > 1) return;
    std::vector<Op> ready;
    take_link(r, ready);
    for (std::size_t i = 0; i < ready.size(); ++i) {
      const Op next = ready[i];
      next->end = next->start + next->time;
      next->resolved = true;
      for (const int each : *next->ranks) {
        Rank& its = at(each);
        its.free = next->end;
        its.queue.pop_front();
        its.changed.notify_one();
        if (!its.queue.empty()) take_link(its, ready);
      }
      if (next->arrives) {
        next->arrives->messages.push_back(next);
        match(*next->arrives);
      }
    }
  }
  void match(Queue& queue) {
    while (!queue.messages.empty() && !queue.receives.empty()) {
      Operation &message = *queue.messages.front(), &receive = *queue.receives.front();
      receive.payload = message.payload;
      receive.end = std::max(receive.start, message.end);
      receive.resolved = true;
      queue.messages.pop_front();
      queue.receives.pop_front();
      at(queue.to).changed.notify_one();
    }
  }

  const Cluster cluster_;
  std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Op> open_;        // collectives, by communicator and number
  std::map<std::tuple<std::uint64_t, int, int, int>, Queue> queues_;  // by communicator, receiver, tag, sender
  AbortReason reason_;
};

struct EmulatedWork final : Work::State {
  bool wait(double seconds) override {
    if (!op) return true;
    if (!links->wait(world_rank, op, seconds)) return false;
    const Op ended = std::exchange(op, nullptr);
    inner.wait();
    if (call.kind != CallKind::recv) return true;
    const Tensor& sent = ended->payload;
    check(sent.dtype() == out.dtype() && sent.numel() == out.numel(), "recv", "{} came, expected {}", sent.shape(),
          out.shape());
    copy_elements(out, sent);
    return true;
  }
  bool done() override { return !op || links->done(op); }
  std::string late(double seconds) override {
    return late_text(fmt::format("{}: rank {} has", to_string(call), world_rank), seconds);
  }

  std::shared_ptr<Links> links;
  int world_rank = 0;
  Call call;
  Op op;       // null: waited for
  Work inner;  // of a collective
  Tensor out;  // of a receive
};

class EmulatedCommunicator final : public ThreadCommunicator {
 public:
  EmulatedCommunicator(std::shared_ptr<ThreadRendezvous> rendezvous, int rank, std::shared_ptr<Links> links,
                       RankList ranks, std::uint64_t id)
      : ThreadCommunicator(std::move(rendezvous), rank), links_(std::move(links)), ranks_(std::move(ranks)), id_(id) {}
  std::string transport() const override { return "threads, emulated links"; }
  EventCount* events() override { return nullptr; }

  Work start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) override {
    auto work = std::make_shared<EmulatedWork>();
    work->links = links_;
    work->world_rank = own();
    work->call = call;
    if (call.kind == CallKind::send) {
      Operation op{.payload = Tensor::empty({in.numel()}, in.dtype())};
      copy_elements(op.payload, in);
      op.time = message_time(call, in);
      work->op = links_->send(own(), id_, ranks_, rank(), call, std::move(op));
    } else if (call.kind == CallKind::recv) {
      work->out = out;
      work->op = links_->receive(own(), id_, rank(), call);
    } else {
      work->inner = ThreadCommunicator::start(call, out, in, counts);
      const Link& link = links_->cluster().link(*ranks_);
      const Nanoseconds time = collective_time(link, call.kind, size(), call.count * size_of(call.type));
      work->op = links_->collective(own(), id_, calls_++, {.ranks = ranks_, .time = time});
    }
    return Work(std::move(work));
  }
  int probe(int tag, int first) override { return links_->probe(id_, rank(), tag, first); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    Part mine = part(color, key);
    std::vector<int> ranks;
    for (const int member : mine.members) ranks.push_back((*ranks_)[static_cast<std::size_t>(member)]);
    Fnv id;
    id.add(id_, splits_++, color);
    return std::make_unique<EmulatedCommunicator>(std::move(mine.rendezvous), mine.rank, links_,
                                                  std::make_shared<const std::vector<int>>(std::move(ranks)),
                                                  id.value());
  }
  void abort(const AbortReason& reason) override {
    links_->end(reason);
    ThreadCommunicator::abort(reason);
  }
  AbortReason ended() const override { return links_->ended(); }

 private:
  int own() const { return (*ranks_)[static_cast<std::size_t>(rank())]; }  // of the world
  /// Of a message to a channel the header takes what the payload takes, and the payload comes with it.
  Nanoseconds message_time(const Call& call, const Tensor& x) const {
    Index bytes = x.numel() * size_of(x.dtype());
    if (call.tag >= message_tags) {
      if (call.tag % 2 != message_tags % 2) return 0;
      MessageHeader header;
      std::memcpy(&header, x.view().data, sizeof header);
      bytes = header.bytes + static_cast<Index>(sizeof header);
    }
    const int to = (*ranks_)[static_cast<std::size_t>(call.root)];
    return trireme::message_time(links_->cluster().link(std::array{own(), to}), bytes);
  }

  std::shared_ptr<Links> links_;
  RankList ranks_;
  std::uint64_t id_, calls_ = 0;
  int splits_ = 0;
};

}  // namespace

EmulatedClock::EmulatedClock() : at_(real()), processor_at_(processor()) {}
Nanoseconds EmulatedClock::real() { return time_of(CLOCK_MONOTONIC); }
Nanoseconds EmulatedClock::processor() { return time_of(CLOCK_THREAD_CPUTIME_ID); }

void EmulatedClock::sleep_until(Nanoseconds then) {
  if (then <= now()) return;
  const timespec t{then / second, then % second};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) != 0) {}
  at_ = then;
  processor_at_ = processor();
  late_ += real() - then;
  ++sleeps_;
}

void EmulatedClock::restart(Nanoseconds then) {
  sleep_until(then);
  late_ = 0;
  sleeps_ = 0;
}

void emulate(int ranks, const Cluster& cluster, const std::function<void(World&, EmulatedClock&)>& body) {
  validate(cluster);
  check(ranks <= cluster.devices(), "emulation", "{} ranks do not fit on the {} devices of the cluster", ranks,
        cluster.devices());
  const auto links = std::make_shared<Links>(ranks, cluster);
  const auto rendezvous = thread_rendezvous(ranks);
  std::vector<int> all(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)] = r;
  const auto list = std::make_shared<const std::vector<int>>(std::move(all));
  std::mutex mutex;
  std::optional<AbortReason> first;
  const auto run = [&](int r) {
    prctl(PR_SET_TIMERSLACK, 1);  // ns; 50,000 else
    set_threads(1);
    links->begin(r);
    World world(std::make_unique<EmulatedCommunicator>(rendezvous, r, links, list, 0), r, ranks);
    const FlightRecorder recorder(r, ranks);
    try {
      body(world, links->clock(r));
    } catch (const std::exception& e) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first.emplace(fmt::format("rank {}: {}", r, e.what()), current_kind());
      }
      world.comm().abort({e.what(), current_kind()});
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (int r = 0; r < ranks; ++r)
      threads.push_back(start_thread<std::jthread>(fmt::format("rank {} of {}", r, ranks), run, r));
  } catch (const std::exception& e) {  // those that have begun would wait for the others
    links->end(e.what());
    throw;
  }
  threads.clear();
  if (first) throw Error(first->text, std::source_location::current(), first->kind);
}

}  // namespace trireme::test
