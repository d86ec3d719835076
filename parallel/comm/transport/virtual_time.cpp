#include "parallel/comm/transport/virtual_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/core/runtime.h"

namespace trireme {
namespace {
constexpr int most_repeats = 10;    // of questions at one moment
constexpr double no_time = 0.5e-9;  // what is shorter, in seconds, rounds to 0 ns
}  // namespace

VirtualTime::VirtualTime(int ranks, const Cluster& cluster)
    : cluster_(cluster),
      lookahead_(std::min(message_time(cluster.inside, 0), message_time(cluster.between, 0))),
      cores_(trireme::cores()),
      moved_(std::chrono::steady_clock::now()) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) ranks_.push_back(std::make_unique<Rank>()), all.push_back(r);
  all_ = std::make_shared<const std::vector<int>>(std::move(all));
}

VirtualTime::Lock VirtualTime::enter() {
  Lock lock(mutex_);
  moved_ = std::chrono::steady_clock::now();
  return lock;
}

void VirtualTime::begin(int rank) {
  Lock lock = enter();
  block(lock, at(rank), State::running);
}

void VirtualTime::finish(int rank) {
  const Lock lock = enter();
  at(rank).state = State::finished;
  if (std::exchange(at(rank).core, false)) ++cores_;
  schedule();
}

Nanoseconds VirtualTime::now(int rank) const { return ranks_[static_cast<std::size_t>(rank)]->clock; }

void VirtualTime::advance(int rank, Nanoseconds by) {
  check(by >= 0, "virtual time", "the clock cannot go on by {} ns", by);
  const Lock lock = enter();
  Rank& r = at(rank);
  r.clock += by;
  r.forget();
  schedule();
}

// Operations. An operation is resolved when it is the first in the queues of all its ranks' links.

void VirtualTime::enqueue(int rank, const Op& op) {
  Rank& r = at(rank);
  r.forget();
  r.queue.emplace_back(op, r.clock);
  if (r.queue.size() > 1) return;
  op->start = std::max({op->start, r.clock, r.link});
  if (++op->first_of == op->ranks->size()) resolve({op});
}

void VirtualTime::resolve(std::vector<Op> ready) {
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const Op op = ready[i];
    op->end = op->start + op->time;
    if (op->call.kind != CallKind::recv) {
      for (const int rank : *op->ranks) {
        Rank& r = at(rank);
        if (op->states.empty()) r.link = op->end;  // save and restore do not use it
        r.queue.pop_front();
        if (r.queue.empty()) continue;
        auto& [next, started] = r.queue.front();
        next->start = std::max({next->start, started, r.link});
        if (++next->first_of == next->ranks->size()) ready.push_back(next);
      }
      if (const Op receive = std::exchange(op->receive, nullptr))
        receive->start = std::max(receive->start, op->end), ready.push_back(receive);
    }
    op->resolved = true;
    if (op->then) op->then(*op);
    for (const int rank : *op->ranks) {
      Rank& r = at(rank);
      if (r.state != State::waiting || r.awaited != op) continue;
      r.clock = std::max(r.clock, op->end);
      r.state = State::running;
    }
  }
  schedule();
}

VirtualTime::Op VirtualTime::collective(int rank, std::uint64_t communicator, std::uint64_t number, Op op,
                                        const std::array<int, 3>& caller) {
  const Lock lock = enter();
  const auto slot = open_.try_emplace({communicator, number}, std::move(op)).first;
  op = slot->second;  // the first rank's
  op->callers.push_back(caller);
  if (op->callers.size() == op->ranks->size()) open_.erase(slot);
  enqueue(rank, op);
  return op;
}

VirtualTime::Mailbox& VirtualTime::mailbox(std::uint64_t communicator, int own, int tag, int owner) {
  Mailbox& box = mailboxes_[{communicator, own, tag}];
  box.owner = owner;
  return box;
}

void VirtualTime::match(Queue& queue, std::vector<Op>& ready) {
  while (!queue.messages.empty() && !queue.receives.empty()) {
    const Op message = queue.messages.front(), receive = queue.receives.front();
    queue.messages.pop_front(), queue.receives.pop_front();
    receive->payload = message->payload;
    if (message->resolved)
      receive->start = std::max(receive->start, message->end), ready.push_back(receive);
    else
      message->receive = receive;
  }
}

VirtualTime::Op VirtualTime::send(int rank, std::uint64_t communicator, const RankList& ranks, const Call& call,
                                  int own, Tensor x) {
  const int to = (*ranks)[static_cast<std::size_t>(call.root)];
  const Op op = std::make_shared<VirtualOp>();
  op->call = call;
  op->ranks = std::make_shared<const std::vector<int>>(1, rank);
  op->time = message_time(cluster_.link(std::array{rank, to}), call.count * size_of(call.type));
  // Of a message to a channel the header takes what the payload takes, and the payload comes with it.
  const bool head = call.tag >= message_tags && call.tag % 2 == message_tags % 2;
  if (head) {
    MessageHeader header;
    std::memcpy(&header, x.view().data, sizeof header);
    op->time = message_time(cluster_.link(std::array{rank, to}), header.bytes);
  } else if (call.tag >= message_tags) {
    op->time = 0;
  }
  op->payload = std::move(x);
  const Lock lock = enter();
  std::vector<Op> ready;
  Queue& queue = mailbox(communicator, call.root, call.tag, to).from[own];
  queue.messages.push_back(op);
  match(queue, ready);
  enqueue(rank, op);
  resolve(std::move(ready));
  return op;
}

VirtualTime::Op VirtualTime::receive(int rank, std::uint64_t communicator, const RankList& ranks, const Call& call,
                                     int own) {
  const Op op = std::make_shared<VirtualOp>();
  op->call = call;
  op->ranks = std::make_shared<const std::vector<int>>(1, rank);
  const Lock lock = enter();
  Rank& r = at(rank);
  r.forget();
  op->start = r.clock;
  std::vector<Op> ready;
  Mailbox& box = mailbox(communicator, own, call.tag, rank);
  if (call.tag >= message_tags) box.next = (call.root + 1) % static_cast<int>(ranks->size());
  Queue& queue = box.from[call.root];
  queue.receives.push_back(op);
  match(queue, ready);
  resolve(std::move(ready));
  return op;
}

/// Notes what was found undone. A loop that does nothing but ask: the clock goes on to the first event.
template <class T>
void VirtualTime::asked_again(Lock& lock, Rank& r, std::vector<T>& asked, const T& what) {
  if (std::ranges::find(asked, what) == asked.end()) return asked.push_back(what);
  if (++r.repeats < most_repeats) return;
  sleep(lock, r, never);
  r.forget();
}

int VirtualTime::probe(int rank, std::uint64_t communicator, int own, int tag, int first) {
  Lock lock = enter();
  Rank& r = at(rank);
  sleep(lock, r, r.clock);
  Mailbox& box = mailbox(communicator, own, tag, rank);
  if (tag >= message_tags) first = box.next;
  int found = -1;
  for (auto& [from, queue] : box.from) {
    if (queue.messages.empty() || !queue.messages[0]->resolved || queue.messages[0]->end > r.clock) continue;
    if (found < 0 || (found < first && from >= first)) found = from;
  }
  if (found < 0) asked_again<const Mailbox*>(lock, r, r.mailboxes, &box);
  return found;
}

// What may go on.

/// Deadlines are of virtual time; TRIREME_TIMEOUT is of real time, and no deadline.
Nanoseconds VirtualTime::deadline(const Rank& r, double seconds) const {
  return seconds >= collective_timeout().count() ? never : r.clock + nanoseconds(seconds);
}

Nanoseconds VirtualTime::next_event(const Rank& r) const {
  Nanoseconds first = r.deadline;
  for (const Op& op : r.polled)
    if (op->resolved) first = std::min(first, op->end);
  for (const Mailbox* box : r.mailboxes)
    for (const auto& [from, queue] : box->from)
      if (!queue.messages.empty() && queue.messages[0]->resolved) first = std::min(first, queue.messages[0]->end);
  return std::max(first, r.clock);
}

void VirtualTime::schedule() {
  using Key = std::tuple<Nanoseconds, int, const Rank*>;  // running ranks come before those that look at that time
  Key first{never, 0, nullptr};
  bool going = false;
  for (int i = 0; i < std::ssize(ranks_); ++i) {
    Rank& r = at(i);
    if (r.state == State::asleep) r.wake = next_event(r);
    const bool runs = r.state == State::running;
    if (!runs && (r.state != State::asleep || r.wake >= never)) continue;
    going = true;
    first = std::min(first, Key{runs ? r.clock : r.wake, runs ? -1 : i, &r});
  }
  for (auto& rank : ranks_) {
    Rank& r = *rank;
    if (r.state != State::asleep || r.wake >= never) continue;
    if (std::get<2>(first) != &r && std::get<0>(first) + lookahead_ <= r.wake) continue;
    r.clock = r.wake;
    r.state = State::running;
  }
  const auto waits = [](const auto& r) { return r->state == State::waiting || r->state == State::asleep; };
  if (!going && !ended_ && std::ranges::any_of(ranks_, waits)) {
    std::string text = "virtual time: no rank can go on:";
    for (int i = 0; i < std::ssize(ranks_); ++i) text += fmt::format("{} rank {} {}", i ? "," : "", i, where(at(i)));
    end_by(std::move(text), true);
  }
  hand_out();
}

void VirtualTime::hand_out() {
  while (cores_ > 0) {
    Rank* first = nullptr;
    for (auto& r : ranks_)
      if (r->state == State::running && !r->core && (!first || r->clock < first->clock)) first = r.get();
    if (!first) return;
    first->core = true, --cores_;
    first->changed.notify_one();
  }
}

/// False: nothing has moved for TRIREME_TIMEOUT seconds. In an ended world it returns at once.
bool VirtualTime::block(Lock& lock, Rank& r, State state) {
  r.state = state;
  schedule();
  if (r.state != State::running && r.core) {
    r.core = false, ++cores_;
    hand_out();
  }
  const auto most = collective_timeout();
  const auto goes_on = [&] { return ended_ || (r.state == State::running && r.core); };
  while (!r.changed.wait_until(lock, moved_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(most),
                               goes_on))
    if (std::chrono::steady_clock::now() - moved_ >= most) {
      r.state = State::running;
      return false;
    }
  r.state = State::running;
  return true;
}

bool VirtualTime::sleep(Lock& lock, Rank& r, Nanoseconds deadline) {
  if (ended_) return true;
  r.deadline = deadline;
  return block(lock, r, State::asleep);
}

bool VirtualTime::wait(int rank, const Op& op, double seconds) {
  if (seconds < no_time && !done(rank, op)) return false;
  Lock lock = enter();
  Rank& r = at(rank);
  const Nanoseconds most = deadline(r, seconds);
  r.forget();
  if (most < never) {
    r.polled.push_back(op);
    if (!(op->resolved && op->end <= r.clock) && !sleep(lock, r, most)) return false;
    r.polled.clear();
  } else if (!op->resolved && !ended_) {
    r.awaited = op;
    const bool in_time = block(lock, r, State::waiting);
    r.awaited = nullptr;
    if (!in_time) return false;
  }
  if (op->resolved && (most == never || op->end <= r.clock)) {
    if (op->end > r.clock) r.clock = op->end, schedule();
    return true;
  }
  if (ended_) throw_ended(op->call);
  return false;
}

bool VirtualTime::done(int rank, const Op& op) {
  Lock lock = enter();
  Rank& r = at(rank);
  const auto over = [&] { return ended_ || (op->resolved && op->end <= r.clock); };
  if (over()) return true;
  sleep(lock, r, r.clock);
  if (over()) return true;
  asked_again(lock, r, r.polled, op);
  return over();
}

bool VirtualTime::poll(int rank, double seconds, const std::function<bool()>& ready) {
  if (seconds < no_time) return ready();
  Lock lock = enter();
  Rank& r = at(rank);
  const Nanoseconds most = deadline(r, seconds);
  for (;;) {
    r.forget();
    lock.unlock();
    if (ready()) return true;
    lock.lock();
    if (r.clock >= most || !sleep(lock, r, most)) return false;
  }
}

// The end.

void VirtualTime::end_by(std::string reason, bool stuck) {
  if (ended_) return;
  reason_ = std::move(reason), ended_ = true, stuck_ = stuck;
  for (auto& r : ranks_) r->changed.notify_one();
}

void VirtualTime::end(const std::string& reason) {
  const Lock lock = enter();
  end_by(reason, false);
}

std::string VirtualTime::ended() const {
  const Lock lock(mutex_);
  return reason_;
}

void VirtualTime::throw_ended(const Call& call) const {
  if (stuck_) throw Error(reason_, std::source_location::current());
  fail(to_string(call), "ended because of {}", reason_);
}

std::string VirtualTime::where(const Rank& r) const {
  if (r.state == State::finished) return "has returned";
  if (r.state == State::waiting) {
    const Op* before = r.queue.empty() || r.awaited->call.kind == CallKind::recv ? nullptr : &r.queue.front().first;
    return "waits for " + to_string(r.awaited->call) +
           (before && *before != r.awaited ? " behind " + to_string((*before)->call) : "");
  }
  std::string text;
  for (const Op& op : r.polled) text += (text.empty() ? "" : " or ") + to_string(op->call);
  for (const auto& [key, box] : mailboxes_)
    if (std::ranges::find(r.mailboxes, &box) != r.mailboxes.end())
      text +=
          fmt::format("{}a message to channel {}", text.empty() ? "" : " or ", (std::get<2>(key) - message_tags) / 2);
  return "waits for " + text;
}

}  // namespace trireme
