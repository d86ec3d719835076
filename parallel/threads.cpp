#include "parallel/threads.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "kernels/runtime.h"
#include "parallel/call.h"
#include "parallel/reduce.h"

namespace trireme {
namespace {

class Hub;

// What all communicators of one run share: the reason why it was ended, if it was.
struct Job {
  std::mutex mutex;
  std::string reason;
  std::atomic<bool> ended = false;
  std::vector<std::weak_ptr<Hub>> hubs;
};

enum Phase : int { gathering, ready, done, failed };

// One operation whose partners have to find each other: a collective call, or a message.
struct Meeting {
  std::atomic<int> phase = gathering;
  std::string error;
};

struct Collective : Meeting {
  Call call;
  std::uint64_t number = 0;
  int first = -1;  // the rank that came first: its call is the one to match
  int arrived = 0;
  std::vector<View> in, out;
  std::vector<Tensor> keep;
  std::vector<bool> here;
  Index piece = 1, pieces = 0;
  std::atomic<Index> next = 0, finished = 0;
  // split
  std::vector<std::pair<int, int>> color_key;
  std::map<int, std::shared_ptr<Hub>> children;
};

struct Message : Meeting {
  Tensor x;
};

// Bytes of a piece: small enough to share the work among waiting ranks, large enough that claiming one costs nothing.
constexpr Index piece_bytes = 128 << 10;

class Hub : public std::enable_shared_from_this<Hub> {
 public:
  Hub(std::shared_ptr<Job> job, int size, std::string transport)
      : job_(std::move(job)), size_(size), transport_(std::move(transport)), spins_(size <= cores() ? 60 : 0) {}

  int size() const { return size_; }
  const std::string& transport() const { return transport_; }

  std::shared_ptr<Collective> join(int rank, std::uint64_t number, const Call& call, const Tensor& out, const Tensor& in);
  std::shared_ptr<Message> post(int from, int to, int tag, const Tensor& x, bool is_send);
  void wait(Meeting&, Collective*, int rank, const std::string& what);
  bool progress(Meeting&, Collective*);
  void help(Collective&);
  std::shared_ptr<Hub> split(int rank, std::uint64_t number, int color, int key, int& new_rank);
  void end(const std::string& reason);
  void wake() {
    { std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }
  static void enlist(const std::shared_ptr<Hub>& hub) {
    std::lock_guard lock(hub->job_->mutex);
    std::erase_if(hub->job_->hubs, [](auto& h) { return h.expired(); });
    hub->job_->hubs.push_back(hub);
  }

 private:
  void seat(Collective&, int rank, const Call&, const Tensor& out, const Tensor& in);
  void complete_arrival(Collective&);
  void run(Collective&, Index begin, Index end);
  void finish(Collective&);
  std::string missing(const Collective&);

  std::shared_ptr<Job> job_;
  const int size_;
  const std::string transport_;
  const int spins_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<Collective>> open_;
  struct Box { std::deque<std::shared_ptr<Message>> sends, recvs; };
  std::map<std::array<int, 3>, Box> boxes_;  // by sender, receiver, tag
};

void copy_bytes(void* to, const void* from, Index bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void Hub::seat(Collective& c, int rank, const Call& call, const Tensor& out, const Tensor& in) {
  if (c.arrived == 0) {
    c.call = call;
    c.first = rank;
    c.in.resize(size_), c.out.resize(size_), c.here.resize(size_), c.color_key.resize(size_);
  }
  if (call != c.call && c.phase != failed) {
    c.error = fmt::format("{}: call {} of this communicator is {} on rank {} but {} on rank {}: every rank must make the same calls in "
                          "the same order", name_of(call.kind), c.number, to_string(c.call), c.first, to_string(call), rank);
    c.phase = failed;
    changed_.notify_all();
  }
  if (out.defined()) c.out[rank] = out.view(), c.keep.push_back(out);
  if (in.defined()) c.in[rank] = in.view(), c.keep.push_back(in);
  c.here[rank] = true;
  ++c.arrived;
}

std::shared_ptr<Collective> Hub::join(int rank, std::uint64_t number, const Call& call, const Tensor& out, const Tensor& in) {
  std::shared_ptr<Collective> c;
  bool small = false;
  {
    std::lock_guard lock(mutex_);
    auto& slot = open_[number];
    if (!slot) {
      slot = std::make_shared<Collective>();
      slot->number = number;
    }
    c = slot;
    seat(*c, rank, call, out, in);
    if (c->arrived < size_) return c;
    open_.erase(number);
    if (c->phase == failed) return c;
    c->piece = std::max<Index>(1, piece_bytes / size_of(call.type));
    c->pieces = (call.count + c->piece - 1) / c->piece;
    small = c->pieces <= 1;
    c->phase = ready;
  }
  // The last to come does small operations at once: nobody needs to be woken twice.
  if (small) help(*c);
  else changed_.notify_all();
  return c;
}

// Does [begin, end) of the call's elements, for all ranks.
void Hub::run(Collective& c, Index begin, Index end) {
  const Index bytes = size_of(c.call.type), block = c.call.count / size_;
  auto at = [&](const View& v, Index element) { return v.as<char>() + element * bytes; };
  std::vector<const void*> ins(size_);
  std::vector<void*> outs;
  while (begin < end) {
    const bool blocks = c.call.kind != CallKind::all_reduce && c.call.kind != CallKind::broadcast;
    const int owner = blocks ? static_cast<int>(begin / block) : c.call.root;
    const Index stop = blocks ? std::min(end, (owner + 1) * block) : end, n = stop - begin, within = begin - owner * block;
    outs.clear();
    switch (c.call.kind) {
      case CallKind::all_reduce:
        for (int r = 0; r < size_; ++r) ins[r] = at(c.out[r], begin), outs.push_back(at(c.out[r], begin));
        reduce_all(outs, ins, n, c.call.type, c.call.op);
        break;
      case CallKind::reduce_scatter:
        for (int r = 0; r < size_; ++r) ins[r] = at(c.in[r], begin);
        outs.push_back(at(c.out[owner], within));
        reduce_all(outs, ins, n, c.call.type, c.call.op);
        break;
      case CallKind::all_gather:
        for (int r = 0; r < size_; ++r) copy_bytes(at(c.out[r], begin), at(c.in[owner], within), n * bytes);
        break;
      case CallKind::broadcast:
        for (int r = 0; r < size_; ++r) copy_bytes(at(c.out[r], begin), at(c.out[owner], begin), n * bytes);
        break;
      case CallKind::all_to_all:
        for (int r = 0; r < size_; ++r)
          copy_bytes(at(c.out[r], begin), at(c.in[owner], r * block + within), n * bytes);
        break;
      case CallKind::barrier:
      case CallKind::split: break;
    }
    begin = stop;
  }
}

void Hub::finish(Collective& c) {
  std::vector<Tensor> keep;  // released outside the lock
  {
    std::lock_guard lock(mutex_);
    keep.swap(c.keep);
    c.phase = done;
  }
  changed_.notify_all();
}

void Hub::help(Collective& c) {
  if (c.pieces == 0) return finish(c);
  for (Index i; (i = c.next.fetch_add(1)) < c.pieces;) {
    run(c, i * c.piece, std::min(c.call.count, (i + 1) * c.piece));
    if (c.finished.fetch_add(1) + 1 == c.pieces) finish(c);
  }
}

bool Hub::progress(Meeting& m, Collective* c) {
  if (c && m.phase == ready) help(*c);
  return m.phase == done || m.phase == failed || job_->ended;
}

std::string Hub::missing(const Collective& c) {
  std::string text;
  for (int r = 0; r < size_; ++r)
    if (!c.here[r]) text += (text.empty() ? "" : ", ") + std::to_string(r);
  return text;
}

void Hub::wait(Meeting& m, Collective* c, int rank, const std::string& what) {
  for (int i = 0; i < spins_ && m.phase == gathering; ++i) std::this_thread::yield();
  if (progress(m, c) && m.phase == done) return;
  std::unique_lock lock(mutex_);
  bool in_time = changed_.wait_for(lock, patience(), [&] { return m.phase == done || m.phase == failed || job_->ended ||
                                                                 (m.phase == ready && c && c->next < c->pieces); });
  if (m.phase == done) return;
  if (m.phase == failed) throw Error(m.error, std::source_location::current());
  if (job_->ended) {
    std::lock_guard job_lock(job_->mutex);
    fail(what, "ended because of {}", job_->reason);
  }
  if (!in_time)
    fail(what, "rank {} of {} has waited {} s{}: another rank hangs or took another path. TRIREME_TIMEOUT sets the patience in seconds",
         rank, size_, patience().count(), c && c->arrived < size_ ? fmt::format(" for rank {} (call {})", missing(*c), c->number) : "");
  lock.unlock();
  wait(m, c, rank, what);
}

// The second of the two partners copies.
std::shared_ptr<Message> Hub::post(int from, int to, int tag, const Tensor& x, bool is_send) {
  auto mine = std::make_shared<Message>();
  mine->x = x;
  std::shared_ptr<Message> other;
  {
    std::lock_guard lock(mutex_);
    auto box = boxes_.try_emplace({from, to, tag}).first;
    auto& waiting = is_send ? box->second.recvs : box->second.sends;
    if (waiting.empty()) {
      (is_send ? box->second.sends : box->second.recvs).push_back(mine);
      return mine;
    }
    other = waiting.front();
    waiting.pop_front();
    if (box->second.sends.empty() && box->second.recvs.empty()) boxes_.erase(box);
  }
  const Tensor& source = is_send ? mine->x : other->x;
  const Tensor& target = is_send ? other->x : mine->x;
  const bool fits = source.dtype() == target.dtype() && source.numel() == target.numel();
  if (fits) copy_bytes(target.view().data, source.view().data, source.view().bytes());
  {
    std::lock_guard lock(mutex_);
    if (!fits)
      mine->error = other->error =
          fmt::format("recv: rank {} sent {} {} with tag {}, rank {} expected {} {}", from, source.numel(), name_of(source.dtype()), tag,
                      to, target.numel(), name_of(target.dtype()));
    mine->phase = other->phase = fits ? done : failed;
  }
  changed_.notify_all();
  return mine;
}

std::shared_ptr<Hub> Hub::split(int rank, std::uint64_t number, int color, int key, int& new_rank) {
  std::shared_ptr<Collective> c;
  {
    std::lock_guard lock(mutex_);
    auto& slot = open_[number];
    if (!slot) slot = std::make_shared<Collective>(), slot->number = number;
    c = slot;
    seat(*c, rank, {CallKind::split}, {}, {});
    c->color_key[rank] = {color, key};
    if (c->arrived == size_) {
      open_.erase(number);
      std::map<int, int> sizes;
      for (auto& [its_color, its_key] : c->color_key) ++sizes[its_color];
      for (auto [its_color, count] : sizes) {
        auto child = std::make_shared<Hub>(job_, count, transport_);
        enlist(child);
        c->children[its_color] = child;
      }
      if (c->phase != failed) c->phase = done;
      changed_.notify_all();
    }
  }
  wait(*c, c.get(), rank, "split");
  new_rank = 0;
  for (int r = 0; r < size_; ++r) {
    auto [its_color, its_key] = c->color_key[r];
    if (its_color == color && std::pair(its_key, r) < std::pair(key, rank)) ++new_rank;
  }
  return c->children.at(color);
}

void Hub::end(const std::string& reason) {
  std::vector<std::shared_ptr<Hub>> hubs;
  {
    std::lock_guard lock(job_->mutex);
    if (job_->ended) return;
    job_->reason = reason;
    job_->ended = true;
    for (auto& weak : job_->hubs)
      if (auto hub = weak.lock()) hubs.push_back(hub);
  }
  for (auto& hub : hubs) hub->wake();
}

struct HubWork : Work::State {
  HubWork(std::shared_ptr<Hub> h, std::shared_ptr<Meeting> m, Collective* c, int r, std::string w)
      : hub(std::move(h)), meeting(std::move(m)), collective(c), rank(r), what(std::move(w)), unwinding(std::uncaught_exceptions()) {}
  ~HubWork() override {
    // On the way out of an error the partners may never come; the meeting keeps the tensors for those who still use them.
    if (waited || std::uncaught_exceptions() > unwinding) return;
    try {
      wait();
    } catch (...) {  // nobody is left to tell; the job's error is reported by the rank that caused it
    }
  }
  void wait() override {
    waited = true;
    hub->wait(*meeting, collective, rank, what);
  }
  bool done() override { return hub->progress(*meeting, collective); }

  std::shared_ptr<Hub> hub;
  std::shared_ptr<Meeting> meeting;
  Collective* collective;  // meeting, if it is one
  int rank;
  std::string what;
  int unwinding;
  bool waited = false;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::string transport() const override { return hub_->transport(); }

  Work all_reduce(const Tensor& x, ReduceOp op) override {
    auto call = all_reduce_call(x, op);
    return size() == 1 ? Work{} : collective(call, x, {});
  }
  Work reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    return collective(reduce_scatter_call(out, in, op, size()), out, in);
  }
  Work all_gather(const Tensor& out, const Tensor& in) override { return collective(all_gather_call(out, in, size()), out, in); }
  Work broadcast(const Tensor& x, int root) override { return collective(broadcast_call(x, root, size()), x, {}); }
  Work all_to_all(const Tensor& out, const Tensor& in) override { return collective(all_to_all_call(out, in, size()), out, in); }
  Work send(const Tensor& x, int to, int tag) override {
    check_message("send", x, to, tag, size());
    return message(hub_->post(rank_, to, tag, x, true), fmt::format("send of {} {} to rank {}", x.numel(), x.dtype(), to));
  }
  Work recv(const Tensor& x, int from, int tag) override {
    check_message("recv", x, from, tag, size());
    return message(hub_->post(from, rank_, tag, x, false), fmt::format("recv of {} {} from rank {}", x.numel(), x.dtype(), from));
  }
  void barrier() override { collective({}, {}, {}).wait(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    int new_rank = 0;
    auto hub = hub_->split(rank_, calls_++, color, key, new_rank);
    return std::make_unique<ThreadCommunicator>(std::move(hub), new_rank);
  }
  void abort(const std::string& reason) override { hub_->end(reason); }

 private:
  Work collective(const Call& call, const Tensor& out, const Tensor& in) {
    auto c = hub_->join(rank_, calls_++, call, out, in);
    if (c->phase == done) return {};
    return Work(std::make_shared<HubWork>(hub_, c, c.get(), rank_, to_string(call)));
  }
  Work message(std::shared_ptr<Message> m, std::string what) {
    if (m->phase == done) return {};
    return Work(std::make_shared<HubWork>(hub_, std::move(m), nullptr, rank_, std::move(what)));
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  std::uint64_t calls_ = 0;
};

std::vector<std::unique_ptr<Communicator>> communicators(int ranks, const std::string& transport) {
  check(ranks >= 1, "ranks", "got {}, expected at least 1", ranks);
  auto hub = std::make_shared<Hub>(std::make_shared<Job>(), ranks, transport);
  Hub::enlist(hub);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<ThreadCommunicator>(hub, r));
  return all;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> thread_communicators(int ranks) { return communicators(ranks, "threads"); }
std::unique_ptr<Communicator> single_communicator() { return std::move(communicators(1, "single")[0]); }

}  // namespace trireme
