#include "parallel/comm/transport/thread_rendezvous.h"

#include <cstring>

#include "parallel/comm/reduce.h"

namespace trireme {
namespace {

// Bytes of a piece: small enough to share the work among waiting ranks, large enough that claiming one costs nothing.
constexpr Index piece_bytes = 128 << 10;

void copy_bytes(void* to, const void* from, Index bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

void Job::sleep(std::uint64_t ticket, double seconds) {
  std::unique_lock lock(sleep_mutex);
  ++sleepers;
  happened.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return events != ticket; });
  --sleepers;
}

void Job::notify() {
  ++events;
  if (sleepers == 0) return;
  { std::lock_guard lock(sleep_mutex); }
  happened.notify_all();
}

std::shared_ptr<Collective> ThreadRendezvous::register_arrival(std::uint64_t number, int rank, const Call& call,
                                                               const Tensor& out, const Tensor& in) {
  auto& slot = open_[number];
  if (!slot) slot = std::make_shared<Collective>();
  Collective& c = *slot;
  if (c.arrived == 0) {
    c.number = number;
    c.call = call;
    c.first = rank;
    c.in.resize(size_), c.out.resize(size_), c.here.resize(size_), c.color_key.resize(size_);
  }
  if (call != c.call && c.phase != failed) {
    c.error = fmt::format(
        "{}: call {} of this communicator is {} on rank {} but {} on rank {}: every rank must make the same calls in "
        "the same order",
        name_of(call.kind), c.number, to_string(c.call), c.first, to_string(call), rank);
    c.phase = failed;
    announce();
  }
  if (out.defined()) c.out[rank] = out.view(), c.keep.push_back(out);
  if (in.defined()) c.in[rank] = in.view(), c.keep.push_back(in);
  c.here[rank] = true;
  ++c.arrived;
  return slot;
}

std::shared_ptr<Collective> ThreadRendezvous::join(int rank, std::uint64_t number, const Call& call, const Tensor& out,
                                                   const Tensor& in, std::span<const Index> counts) {
  std::shared_ptr<Collective> c;
  bool small = false;
  {
    std::lock_guard lock(mutex_);
    c = register_arrival(number, rank, call, out, in);
    if (c->arrived < size_) return c;
    open_.erase(number);
    if (c->phase == failed) return c;
    c->offsets = block_offsets(call, counts, size_);
    c->piece = std::max<Index>(1, piece_bytes / size_of(call.type));
    c->pieces = (call.count + c->piece - 1) / c->piece;
    small = c->pieces <= 1;
    c->phase = ready;
  }
  // The last to come does small operations at once: nobody needs to be woken twice.
  if (small)
    make_progress(*c);
  else
    announce();
  return c;
}

// Does [begin, end) of the larger side's elements, for all ranks.
void ThreadRendezvous::run(Collective& c, Index begin, Index end) {
  const CallKind kind = c.call.kind;
  const Index bytes = size_of(c.call.type), block = c.call.count / size_;
  const auto at = [&](const View& v, Index element) { return v.as<char>() + element * bytes; };
  const bool reduces = kind <= CallKind::reduce_scatter;
  const bool to_root = kind == CallKind::reduce || kind == CallKind::gather;
  const bool to_owner = kind == CallKind::reduce_scatter || kind == CallKind::scatter;
  const bool from_owner = kind == CallKind::all_gather || kind == CallKind::gather || kind == CallKind::all_to_all;
  std::vector<const void*> ins;
  std::vector<void*> outs;
  while (begin < end) {
    const auto next = std::ranges::upper_bound(c.offsets, begin);
    const int owner = static_cast<int>(next - c.offsets.begin()) - 1, root = c.call.root;
    const Index stop = std::min(end, *next), n = stop - begin, within = begin - next[-1];
    ins.clear(), outs.clear();
    for (int r = 0; r < size_; ++r) {
      const bool receives = to_owner ? r == owner : !to_root || r == root;
      if (receives && c.out[r]) outs.push_back(at(c.out[r], to_owner ? within : begin));
      if (reduces || r == (from_owner ? owner : root)) ins.push_back(at(c.in[r], from_owner ? within : begin));
    }
    if (reduces) reduce_all(outs, ins, n, c.call.type, c.call.op);
    for (std::size_t r = 0; !reduces && r < outs.size(); ++r)
      copy_bytes(outs[r], static_cast<const char*>(ins[0]) + (kind == CallKind::all_to_all ? r * block * bytes : 0),
                 n * bytes);
    begin = stop;
  }
}

void ThreadRendezvous::finish(Collective& c) {
  std::vector<Tensor> keep;  // released outside the lock
  {
    std::lock_guard lock(mutex_);
    keep.swap(c.keep);
    c.phase = done;
  }
  announce();
}

void ThreadRendezvous::make_progress(Collective& c) {
  if (c.pieces == 0) return finish(c);
  for (Index i; (i = c.next.fetch_add(1)) < c.pieces;) {
    run(c, i * c.piece, std::min(c.call.count, (i + 1) * c.piece));
    if (c.finished.fetch_add(1) + 1 == c.pieces) finish(c);
  }
}

bool ThreadRendezvous::progress(PendingOp& m, Collective* c) {
  if (c && m.phase == ready) make_progress(*c);
  return m.phase == done || m.phase == failed || job_->ended;
}

std::string ThreadRendezvous::late(const Collective* c, const Call& call, int rank, double seconds) {
  std::string missing;
  std::lock_guard lock(mutex_);
  for (int r = 0; c && c->arrived < size_ && r < size_; ++r)
    if (!c->here[r]) missing += (missing.empty() ? " for rank " : ", ") + std::to_string(r);
  if (!missing.empty()) missing += fmt::format(" (call {})", c->number);
  return late_text(fmt::format("{}: rank {} of {} has", to_string(call), rank, size_), seconds, missing);
}

bool ThreadRendezvous::wait(PendingOp& m, Collective* c, const Call& call, double seconds) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> most(std::min(seconds, 1e9));
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(most);
  for (int i = 0; i < spins_ && m.phase == gathering; ++i) std::this_thread::yield();
  for (;;) {
    if (progress(m, c) && m.phase == done) return true;
    std::unique_lock lock(mutex_);
    const bool in_time = changed_.wait_until(lock, end, [&] {
      return m.phase == done || m.phase == failed || job_->ended || (m.phase == ready && c && c->next < c->pieces);
    });
    if (m.phase == done) return true;
    if (m.phase == failed) throw Error(m.error, std::source_location::current());
    if (job_->ended) {
      std::lock_guard job_lock(job_->mutex);
      fail(to_string(call), "ended because of {}", job_->reason);
    }
    if (!in_time) return false;
  }
}

int ThreadRendezvous::probe(int to, int tag, int first) {
  std::lock_guard lock(mutex_);
  for (const auto& [begin, end] : {std::pair(first, size_), std::pair(0, first)})
    for (auto box = mailboxes_.lower_bound({to, tag, begin}); box != mailboxes_.lower_bound({to, tag, end}); ++box)
      if (!box->second.sends.empty()) return box->first[2];
  return -1;
}

// The second of the two partners copies.
std::shared_ptr<PointToPoint> ThreadRendezvous::post(int from, int to, int tag, const Tensor& x, bool is_send) {
  auto mine = std::make_shared<PointToPoint>();
  mine->x = x;
  std::shared_ptr<PointToPoint> other;
  {
    std::lock_guard lock(mutex_);
    auto mailbox = mailboxes_.try_emplace({to, tag, from}).first;
    auto& waiting = is_send ? mailbox->second.recvs : mailbox->second.sends;
    if (waiting.empty()) {
      (is_send ? mailbox->second.sends : mailbox->second.recvs).push_back(mine);
      if (is_send) job_->notify();
      return mine;
    }
    other = waiting.front();
    waiting.pop_front();
    if (mailbox->second.sends.empty() && mailbox->second.recvs.empty()) mailboxes_.erase(mailbox);
  }
  const Tensor& source = is_send ? mine->x : other->x;
  const Tensor& target = is_send ? other->x : mine->x;
  const bool fits = source.dtype() == target.dtype() && source.numel() == target.numel();
  if (fits) copy_bytes(target.view().data, source.view().data, source.view().bytes());
  {
    std::lock_guard lock(mutex_);
    if (!fits)
      mine->error = other->error =
          fmt::format("recv: rank {} sent {} {} with tag {}, rank {} expected {} {}", from, source.numel(),
                      name_of(source.dtype()), tag, to, target.numel(), name_of(target.dtype()));
    mine->phase = other->phase = fits ? done : failed;
  }
  announce();
  return mine;
}

std::shared_ptr<ThreadRendezvous> ThreadRendezvous::split(int rank, std::uint64_t number, int color, int key,
                                                          int& new_rank) {
  const Call call{CallKind::split};
  std::shared_ptr<Collective> c;
  {
    std::lock_guard lock(mutex_);
    c = register_arrival(number, rank, call, {}, {});
    c->color_key[rank] = {color, key};
    if (c->arrived == size_) {
      open_.erase(number);
      if (c->phase != failed) c->phase = done;
      announce();
    }
  }
  if (const double most = collective_timeout().count(); !wait(*c, c.get(), call, most))
    throw Error(late(c.get(), call, rank, most), std::source_location::current());
  int members = 0;
  new_rank = 0;
  for (int r = 0; r < size_; ++r) {
    auto [its_color, its_key] = c->color_key[r];
    members += its_color == color;
    if (its_color == color && std::pair(its_key, r) < std::pair(key, rank)) ++new_rank;
  }
  std::lock_guard lock(mutex_);
  auto& child = c->children[color];
  if (!child) enlist(child = std::make_shared<ThreadRendezvous>(job_, members, transport_));
  return child;
}

std::string ThreadRendezvous::ended() const {
  if (!job_->ended) return {};
  std::lock_guard lock(job_->mutex);
  return job_->reason;
}

void ThreadRendezvous::end(const std::string& reason) {
  std::vector<std::shared_ptr<ThreadRendezvous>> all;
  {
    std::lock_guard lock(job_->mutex);
    if (job_->ended) return;
    job_->reason = reason;
    job_->ended = true;
    for (auto& weak : job_->rendezvous)
      if (auto rendezvous = weak.lock()) all.push_back(rendezvous);
  }
  for (auto& rendezvous : all) rendezvous->notify();
}

}  // namespace trireme
