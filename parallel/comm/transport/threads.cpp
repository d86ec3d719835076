#include "parallel/comm/transport/threads.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>

#include "kernels/core/runtime.h"
#include "parallel/comm/call.h"
#include "parallel/comm/reduce.h"

namespace trireme {
namespace {

// Bytes per piece: small enough to share the work among waiting ranks, large enough that claiming a piece is cheap.
constexpr Index piece_bytes = 128 << 10;

void copy_bytes(void* to, const void* from, Index bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// The event count of one rank of a run. An event wakes only the ranks that it concerns.
class RankEvents final : public EventCount {
 public:
  explicit RankEvents(int yields) : yields_(yields) {}
  std::uint64_t ticket() override { return events_; }
  void sleep(std::uint64_t ticket, double seconds) override {
    std::unique_lock lock(mutex_);
    ++sleepers_;
    happened_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return events_ != ticket; });
    --sleepers_;
  }
  int yields() const override { return yields_; }
  void notify() {
    ++events_;
    if (sleepers_ == 0) return;
    { std::lock_guard lock(mutex_); }
    happened_.notify_all();
  }

 private:
  const int yields_;
  std::mutex mutex_;
  std::condition_variable happened_;
  std::atomic<std::uint64_t> events_ = 0;
  std::atomic<int> sleepers_ = 0;
};

/// State shared by all communicators of a run: the events of each rank, and the reason if the run was aborted.
class Job {
 public:
  explicit Job(int ranks) {
    for (int r = 0; r < ranks; ++r) events_.emplace_back(ranks <= cores() ? 60 : 0);
  }
  RankEvents& events(int rank) { return events_[static_cast<std::size_t>(rank)]; }
  bool is_ended() const { return ended_; }
  AbortReason ended() {
    if (!ended_) return {};
    std::lock_guard lock(mutex_);
    return reason_;
  }
  void end(const AbortReason& reason) {
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      reason_ = reason;
      ended_ = true;
    }
    for (RankEvents& rank : events_) rank.notify();
  }

 private:
  std::deque<RankEvents> events_;  // by rank of the run
  std::mutex mutex_;
  AbortReason reason_;
  std::atomic<bool> ended_ = false;
};

enum Phase : int { gathering, ready, done, failed };

/// An operation whose partners must find each other: a collective call or a message.
struct PendingOp {
  virtual ~PendingOp() = default;
  /// In phase `ready`: does work that no other rank has claimed.
  virtual void make_progress(const ThreadRendezvous&) {}
  std::atomic<int> phase = gathering;
  std::string error;
};

struct Collective final : PendingOp {
  Collective(const Call& c, std::uint64_t n, int rank, int size)
      : call(c), number(n), first(rank), in(size), out(size), here(size) {}
  void make_progress(const ThreadRendezvous&) override;
  void run(Index begin, Index end);

  const Call call;
  const std::uint64_t number;
  const int first;  // the first rank to arrive; other ranks' calls are compared with its call
  int arrived = 0;
  std::vector<Tensor> in, out;  // by rank
  std::vector<bool> here;
  std::vector<Index> offsets;  // of blocks, by rank
  Index piece = 1, pieces = 0;
  std::atomic<Index> next = 0, finished = 0;
};

/// Processes elements [begin, end) of the larger side for all ranks.
void Collective::run(Index begin, Index end) {
  const CallKind kind = call.kind;
  const int size = static_cast<int>(here.size()), root = call.root;
  const Index bytes = size_of(call.type), block = call.count / size;
  const auto at = [&](const Tensor& x, Index element) { return x.view().as<char>() + element * bytes; };
  const bool reduces = kind <= CallKind::reduce_scatter;
  const bool to_root = kind == CallKind::reduce || kind == CallKind::gather;
  const bool to_owner = kind == CallKind::reduce_scatter || kind == CallKind::scatter;
  const bool from_owner = kind == CallKind::all_gather || kind == CallKind::gather || kind == CallKind::all_to_all ||
                          kind == CallKind::split;
  std::vector<const void*> ins;
  std::vector<void*> outs;
  while (begin < end) {
    const auto next_block = std::ranges::upper_bound(offsets, begin);
    const int owner = static_cast<int>(next_block - offsets.begin()) - 1;
    const Index stop = std::min(end, *next_block), n = stop - begin, within = begin - next_block[-1];
    ins.clear();
    outs.clear();
    for (int r = 0; r < size; ++r) {
      const bool receives = to_owner ? r == owner : !to_root || r == root;
      if (receives && out[r].defined()) outs.push_back(at(out[r], to_owner ? within : begin));
      if (reduces || r == (from_owner ? owner : root)) ins.push_back(at(in[r], from_owner ? within : begin));
    }
    if (reduces) reduce_all(outs, ins, n, call.type, call.op);
    for (std::size_t r = 0; !reduces && r < outs.size(); ++r)
      copy_bytes(outs[r], static_cast<const char*>(ins[0]) + (kind == CallKind::all_to_all ? r * block * bytes : 0),
                 n * bytes);
    begin = stop;
  }
}

struct PendingMessage final : PendingOp {
  PendingMessage(const Tensor& t, bool sends) : x(t), is_sent(sends) {}
  Tensor x;            // until it is copied; then only its rank uses it
  const bool is_sent;  // true: a send; false: a receive
};

}  // namespace

/// Matches the calls of all ranks of a communicator.
class ThreadRendezvous {
 public:
  /// ranks: world ranks of the run, in this communicator's order.
  ThreadRendezvous(std::shared_ptr<Job> the_job, std::vector<int> ranks, std::string name)
      : job(std::move(the_job)),
        size(static_cast<int>(ranks.size())),
        transport(std::move(name)),
        ranks_(std::move(ranks)) {}

  std::shared_ptr<PendingOp> join(int rank, std::uint64_t number, const Call& call, const Tensor& out, const Tensor& in,
                                  std::span<const Index> counts);
  std::shared_ptr<PendingOp> post(int rank, const Call& call, const Tensor& x);
  int probe(int to, int tag, int first);
  /// " for rank 1, 2 (call 7)": the ranks that have not made a collective call yet.
  std::string missing(const Collective& c);
  /// The communicator of this color from call `number`, which is a split.
  std::shared_ptr<ThreadRendezvous> part(std::uint64_t number, int color, std::vector<int> members) {
    std::lock_guard lock(mutex_);
    std::erase_if(parts_, [](const auto& part) { return part.second.expired(); });
    auto& part = parts_[{number, color}];
    auto found = part.lock();
    if (found) return found;
    for (int& member : members) member = ranks_[static_cast<std::size_t>(member)];
    part = found = std::make_shared<ThreadRendezvous>(job, std::move(members), transport);
    return found;
  }
  /// The events of a rank of this communicator.
  RankEvents& events(int rank) const { return job->events(ranks_[static_cast<std::size_t>(rank)]); }
  void notify_all() const {
    for (const int rank : ranks_) job->events(rank).notify();
  }

  const std::shared_ptr<Job> job;
  const int size;
  const std::string transport;

 private:
  const std::vector<int> ranks_;  // of the run
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Collective>> open_;                            // by call number
  std::map<std::array<int, 3>, std::deque<std::shared_ptr<PendingMessage>>> mailboxes_;  // by receiver, tag, sender
  std::map<std::pair<std::uint64_t, int>, std::weak_ptr<ThreadRendezvous>> parts_;
};

void Collective::make_progress(const ThreadRendezvous& ranks) {
  for (Index i; (i = next.fetch_add(1)) < pieces;) {
    run(i * piece, std::min(call.count, (i + 1) * piece));
    if (finished.fetch_add(1) + 1 < pieces) continue;
    in.clear();
    out.clear();
    phase = done;
    ranks.notify_all();
  }
}

std::shared_ptr<PendingOp> ThreadRendezvous::join(int rank, std::uint64_t number, const Call& call, const Tensor& out,
                                                  const Tensor& in, std::span<const Index> counts) {
  std::shared_ptr<Collective> c;
  {
    std::lock_guard lock(mutex_);
    auto& slot = open_[number];
    if (!slot) slot = std::make_shared<Collective>(call, number, rank, size);
    c = slot;
    if (call != c->call && c->phase != failed) {
      c->error = fmt::format(
          "{}: call {} of this communicator is {} on rank {} but {} on rank {}: every rank must make the same calls in "
          "the same order",
          name_of(call.kind), number, to_string(c->call), c->first, to_string(call), rank);
      c->phase = failed;
      notify_all();
    }
    c->out[rank] = out;
    c->in[rank] = in;
    c->here[rank] = true;
    if (++c->arrived < size) return c;
    open_.erase(number);
    if (c->phase == failed) return c;
    c->offsets = block_offsets(call, counts, size);
    c->piece = std::max<Index>(1, piece_bytes / size_of(call.type));
    c->pieces = std::max<Index>(1, (call.count + c->piece - 1) / c->piece);
    c->phase = ready;
  }
  // The last rank to arrive does a small operation at once, so that no rank wakes up twice.
  if (c->pieces == 1)
    c->make_progress(*this);
  else
    notify_all();
  return c;
}

std::string ThreadRendezvous::missing(const Collective& c) {
  std::lock_guard lock(mutex_);
  std::string ranks;
  for (int r = 0; c.arrived < size && r < size; ++r)
    if (!c.here[r]) ranks += (ranks.empty() ? " for rank " : ", ") + std::to_string(r);
  return ranks.empty() ? "" : fmt::format("{} (call {})", ranks, c.number);
}

int ThreadRendezvous::probe(int to, int tag, int first) {
  std::lock_guard lock(mutex_);
  for (const auto& [begin, end] : {std::pair(first, size), std::pair(0, first)})
    for (auto box = mailboxes_.lower_bound({to, tag, begin}); box != mailboxes_.lower_bound({to, tag, end}); ++box)
      if (box->second.front()->is_sent) return box->first[2];
  return -1;
}

// The second of two partners copies.
std::shared_ptr<PendingOp> ThreadRendezvous::post(int rank, const Call& call, const Tensor& x) {
  const bool sends = call.kind == CallKind::send;
  const int from = sends ? rank : call.root, to = sends ? call.root : rank;
  const auto mine = std::make_shared<PendingMessage>(x, sends);
  std::shared_ptr<PendingMessage> other;
  {
    std::lock_guard lock(mutex_);
    const auto box = mailboxes_.try_emplace({to, call.tag, from}).first;
    auto& waiting = box->second;  // all are sends, or all are receives
    if (waiting.empty() || waiting.front()->is_sent == sends) {
      waiting.push_back(mine);
      if (call.tag >= message_tags) events(to).notify();  // recv_any looks for it
      return mine;
    }
    other = waiting.front();
    waiting.pop_front();
    if (waiting.empty()) mailboxes_.erase(box);
  }
  Tensor source = std::move(mine->x), target = std::move(other->x);
  if (!sends) std::swap(source, target);
  const bool fits = source.dtype() == target.dtype() && source.numel() == target.numel();
  if (fits)
    copy_bytes(target.view().data, source.view().data, source.view().bytes());
  else
    mine->error = other->error =
        fmt::format("recv: rank {} sent {} {} with tag {}, rank {} expected {} {}", from, source.numel(),
                    name_of(source.dtype()), call.tag, to, target.numel(), name_of(target.dtype()));
  source = target = {};
  mine->phase = other->phase = fits ? done : failed;
  events(sends ? to : from).notify();
  return mine;
}

namespace {

struct RendezvousWork final : Work::State {
  RendezvousWork(std::shared_ptr<ThreadRendezvous> r, std::shared_ptr<PendingOp> o, const Call& c, int own)
      : rendezvous(std::move(r)), op(std::move(o)), call(c), rank(own) {}
  bool done() override {
    if (op->phase == ready) op->make_progress(*rendezvous);
    return op->phase >= Phase::done || rendezvous->job->is_ended();
  }
  void finish() override {
    if (op->phase == failed) throw Error(op->error, std::source_location::current(), ErrorKind::communicator);
    if (op->phase != Phase::done) fail_ended(to_string(call), rendezvous->job->ended());
  }
  std::string late(double seconds) override {
    const auto* collective = dynamic_cast<const Collective*>(op.get());
    return late_text(fmt::format("{}: rank {} of {} has", to_string(call), rank, rendezvous->size), seconds,
                     collective ? rendezvous->missing(*collective) : "");
  }
  EventCount* events() override { return &rendezvous->events(rank); }

  std::shared_ptr<ThreadRendezvous> rendezvous;
  std::shared_ptr<PendingOp> op;
  Call call;
  int rank;
};

}  // namespace

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<ThreadRendezvous> rendezvous, int rank)
    : rendezvous_(std::move(rendezvous)), rank_(rank) {}
int ThreadCommunicator::size() const { return rendezvous_->size; }
std::string ThreadCommunicator::transport() const { return rendezvous_->transport; }

Work ThreadCommunicator::start(const Call& call, const Tensor& out, const Tensor& in, std::span<const Index> counts) {
  auto op = call.kind >= CallKind::send ? rendezvous_->post(rank_, call, in.defined() ? in : out)
                                        : rendezvous_->join(rank_, calls_++, call, out, in, counts);
  if (op->phase == Phase::done) return {};
  return Work(std::make_shared<RendezvousWork>(rendezvous_, std::move(op), call, rank_));
}

int ThreadCommunicator::probe(int tag, int first) { return rendezvous_->probe(rank_, tag, first); }
EventCount* ThreadCommunicator::events() { return &rendezvous_->events(rank_); }

ThreadCommunicator::Part ThreadCommunicator::part(int color, int key) {
  const std::uint64_t number = calls_;
  std::vector<int> members = split_members(*this, color, key);
  const auto rank = static_cast<int>(std::ranges::find(members, rank_) - members.begin());
  return {rendezvous_->part(number, color, members), std::move(members), rank};
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  Part mine = part(color, key);
  return std::make_unique<ThreadCommunicator>(std::move(mine.rendezvous), mine.rank);
}

void ThreadCommunicator::abort(const AbortReason& reason) { rendezvous_->job->end(reason); }
AbortReason ThreadCommunicator::ended() const { return rendezvous_->job->ended(); }

std::shared_ptr<ThreadRendezvous> thread_rendezvous(int ranks, const std::string& transport) {
  check(ranks >= 1, "ranks", "got {}, expected at least 1", ranks);
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return std::make_shared<ThreadRendezvous>(std::make_shared<Job>(ranks), std::move(all), transport);
}

std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks) {
  const auto rendezvous = thread_rendezvous(ranks);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<ThreadCommunicator>(rendezvous, r));
  return all;
}
std::unique_ptr<Communicator> single_communicator() {
  return std::make_unique<ThreadCommunicator>(thread_rendezvous(1, "single"), 0);
}

}  // namespace trireme
