#include "parallel/comm/transport/virtual_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/core/runtime.h"

namespace trireme {
namespace {
constexpr int most_repeats = 10;    // of queries at one time
constexpr double no_time = 0.5e-9;  // durations below this, in seconds, round to 0 ns
}  // namespace

VirtualTime::VirtualTime(int ranks, const Cluster& cluster)
    : cluster_(cluster),
      lookahead_(std::min(message_time(cluster.inside, 0), message_time(cluster.between, 0))),
      cores_(trireme::cores()),
      moved_(std::chrono::steady_clock::now()) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) {
    ranks_.push_back(std::make_unique<Rank>(*this, r));
    all.push_back(r);
  }
  all_ = std::make_shared<const std::vector<int>>(std::move(all));
}

VirtualTime::Lock VirtualTime::enter() {
  Lock lock(mutex_);
  moved_ = std::chrono::steady_clock::now();
  return lock;
}

void VirtualTime::begin(Rank& r) {
  Lock lock = enter();
  block(lock, r, State::ready);
}

void VirtualTime::finish(Rank& r) {
  const Lock lock = enter();
  if (r.state == State::running) ++cores_;
  r.state = State::finished;
  schedule();
}

void VirtualTime::advance(Rank& r, Nanoseconds by) {
  check(by >= 0, "virtual time", "the clock cannot advance by {} ns, expected 0 or more", by);
  const Lock lock = enter();
  r.clock += by;
  r.forget();
  schedule();
}

// Operations. An operation is resolved when it is the first in the queues of all its ranks' links.

/// The first operation in the rank's queue takes the link when the link is free.
void VirtualTime::take_link(Rank& r, std::vector<Op>& ready) {
  const auto& [op, started] = r.queue.front();
  op->start = std::max({op->start, started, r.link});
  if (++op->first_of == op->ranks->size()) ready.push_back(op);
}

void VirtualTime::enqueue(Rank& r, const Op& op) {
  r.forget();
  r.queue.emplace_back(op, r.clock);
  if (r.queue.size() > 1) return;
  std::vector<Op> ready;
  take_link(r, ready);
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const Op next = ready[i];
    next->end = next->timeless ? 0 : next->start + next->time;
    next->resolved = true;
    for (const int rank : *next->ranks) {
      Rank& its = at(rank);
      if (!next->timeless) its.link = next->end;
      its.queue.pop_front();
      if (!its.queue.empty()) take_link(its, ready);
    }
    if (!next->mailbox) continue;
    Queue& queue = next->mailbox->from[next->sender];
    queue.messages.push_back(next);
    match(queue);
  }
  if (!ready.empty()) schedule();
}

VirtualTime::Op VirtualTime::collective(Rank& r, std::uint64_t communicator, std::uint64_t number, Op op) {
  const Lock lock = enter();
  const auto slot = open_.try_emplace({communicator, number}, std::move(op)).first;
  op = slot->second;  // the first rank's operation
  if (++op->started == op->ranks->size()) open_.erase(slot);
  enqueue(r, op);
  return op;
}

VirtualTime::Mailbox& VirtualTime::mailbox(std::uint64_t communicator, int own, int tag, int owner) {
  Mailbox& box = mailboxes_[{communicator, own, tag}];
  box.owner = owner;
  box.tag = tag;
  return box;
}

void VirtualTime::match(Queue& queue) {
  while (!queue.messages.empty() && !queue.receives.empty()) {
    Operation &message = *queue.messages.front(), &receive = *queue.receives.front();
    receive.payload = message.payload;
    receive.end = std::max(receive.start, message.end);
    receive.resolved = true;
    queue.messages.pop_front();
    queue.receives.pop_front();
  }
}

VirtualTime::Op VirtualTime::send(Rank& r, std::uint64_t communicator, const RankList& ranks, int own, const Call& call,
                                  Tensor x) {
  const int to = (*ranks)[static_cast<std::size_t>(call.root)];
  Index bytes = call.count * size_of(call.type);
  // The header of a channel message takes the time of its payload; the payload arrives with it.
  const bool head = call.tag >= message_tags && call.tag % 2 == message_tags % 2;
  if (head) {
    MessageHeader header;
    std::memcpy(&header, x.view().data, sizeof header);
    bytes = header.bytes;
  }
  const bool takes_time = head || call.tag < message_tags;
  const auto op = std::make_shared<Operation>(
      Operation{.call = call,
                .ranks = std::make_shared<const std::vector<int>>(1, r.number),
                .time = takes_time ? message_time(cluster_.link(std::array{r.number, to}), bytes) : 0,
                .payload = std::move(x),
                .sender = own});
  const Lock lock = enter();
  op->mailbox = &mailbox(communicator, call.root, call.tag, to);
  enqueue(r, op);
  return op;
}

VirtualTime::Op VirtualTime::receive(Rank& r, std::uint64_t communicator, const RankList& ranks, int own,
                                     const Call& call) {
  const Lock lock = enter();
  r.forget();
  const auto op = std::make_shared<Operation>(Operation{.call = call, .start = r.clock});
  Mailbox& box = mailbox(communicator, own, call.tag, r.number);
  if (call.tag >= message_tags) box.next = (call.root + 1) % static_cast<int>(ranks->size());
  Queue& queue = box.from[call.root];
  queue.receives.push_back(op);
  match(queue);
  return op;
}

/// Records a query whose answer was no. In a polling loop, advances the clock to the next event.
void VirtualTime::asked_again(Lock& lock, Rank& r, const Question& question) {
  if (std::ranges::find(r.asked, question) == r.asked.end()) return r.asked.push_back(question);
  if (++r.repeats < most_repeats) return;
  sleep(lock, r, never);
  r.forget();
}

int VirtualTime::probe(Rank& r, std::uint64_t communicator, int own, int tag, int first) {
  Lock lock = enter();
  sleep(lock, r, r.clock);
  const Mailbox& box = mailbox(communicator, own, tag, r.number);
  if (tag >= message_tags) first = box.next;
  int found = -1;
  for (const auto& [from, queue] : box.from) {
    if (queue.messages.empty() || queue.messages[0]->end > r.clock) continue;
    if (found < 0 || (found < first && from >= first)) found = from;
  }
  if (found < 0) asked_again(lock, r, {.mailbox = &box});
  return found;
}

// What may go on.

/// Deadlines are in virtual time. TRIREME_TIMEOUT is in real time and is no deadline.
Nanoseconds VirtualTime::deadline(const Rank& r, double seconds) const {
  return seconds >= collective_timeout().count() ? never : r.clock + nanoseconds(seconds);
}

Nanoseconds VirtualTime::next_event(const Rank& r) const {
  Nanoseconds first = r.deadline;
  for (const auto& [op, box] : r.asked) {
    if (op && op->resolved) first = std::min(first, op->end);
    if (!box) continue;
    for (const auto& [from, queue] : box->from)
      if (!queue.messages.empty()) first = std::min(first, queue.messages[0]->end);
  }
  return std::max(first, r.clock);
}

void VirtualTime::schedule() {
  using Key = std::pair<Nanoseconds, int>;  // running ranks come before ranks that look at that time
  Key first{never, 0};
  bool blocked = false;
  for (auto& rank : ranks_) {
    Rank& r = *rank;
    if (r.state == State::waiting && r.asked[0].op->resolved) {
      r.clock = std::max(r.clock, r.asked[0].op->end);
      r.state = State::ready;
    }
    const bool runs = r.state == State::ready || r.state == State::running;
    r.wake = runs ? r.clock : r.state == State::asleep ? next_event(r) : never;
    first = std::min(first, Key{r.wake, runs ? -1 : r.number});
    blocked = blocked || r.state == State::waiting || r.state == State::asleep;
  }
  if (first.first >= never && blocked && !ended_) {
    std::string text = "virtual time: no rank can go on:";
    for (auto& r : ranks_) text += fmt::format("{} rank {} {}", r->number ? "," : "", r->number, where(*r));
    end_by(std::move(text), true);
  }
  for (auto& r : ranks_) {
    if (r->state != State::asleep || r->wake >= never) continue;
    if (first != Key{r->wake, r->number} && first.first + lookahead_ <= r->wake) continue;
    r->clock = r->wake;
    r->state = State::ready;
  }
  while (cores_ > 0) {
    Rank* next = nullptr;
    for (auto& r : ranks_)
      if (r->state == State::ready && (!next || r->clock < next->clock)) next = r.get();
    if (!next) return;
    next->state = State::running;
    --cores_;
    next->changed.notify_one();
  }
}

/// Returns false if nothing has progressed for TRIREME_TIMEOUT seconds. Returns at once in an aborted world.
bool VirtualTime::block(Lock& lock, Rank& r, State state) {
  if (r.state == State::running) ++cores_;
  r.state = state;
  schedule();
  const auto most = std::chrono::duration_cast<std::chrono::steady_clock::duration>(collective_timeout());
  const auto goes_on = [&] { return ended_ || r.state == State::running; };
  bool in_time = true;
  while (in_time && !r.changed.wait_until(lock, moved_ + most, goes_on))
    in_time = std::chrono::steady_clock::now() - moved_ < most;
  if (r.state != State::running) --cores_;
  r.state = State::running;
  return in_time;
}

bool VirtualTime::sleep(Lock& lock, Rank& r, Nanoseconds deadline) {
  if (ended_) return true;
  r.deadline = deadline;
  return block(lock, r, State::asleep);
}

bool VirtualTime::wait(Rank& r, const Op& op, double seconds) {
  if (seconds < no_time && !done(r, op)) return false;
  Lock lock = enter();
  const Nanoseconds most = deadline(r, seconds);
  const auto over = [&] { return op->resolved && (most == never || op->end <= r.clock); };
  r.forget();
  if (!over() && !ended_) {
    r.asked.push_back({op});
    if (!(most == never ? block(lock, r, State::waiting) : sleep(lock, r, most))) return false;
    r.forget();
  }
  if (over()) {
    if (op->end > r.clock) {
      r.clock = op->end;
      schedule();
    }
    return true;
  }
  if (ended_) throw_ended(op->call);
  return false;
}

bool VirtualTime::done(Rank& r, const Op& op) {
  Lock lock = enter();
  const auto over = [&] { return ended_ || (op->resolved && op->end <= r.clock); };
  if (over()) return true;
  sleep(lock, r, r.clock);
  if (over()) return true;
  asked_again(lock, r, {op});
  return over();
}

bool VirtualTime::poll(Rank& r, double seconds, const std::function<bool()>& ready) {
  if (seconds < no_time) return ready();
  Lock lock = enter();
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

void VirtualTime::end_by(AbortReason reason, bool stuck) {
  if (ended_) return;
  reason_ = std::move(reason);
  ended_ = true;
  stuck_ = stuck;
  for (auto& r : ranks_) r->changed.notify_one();
}

void VirtualTime::end(const AbortReason& reason) {
  const Lock lock = enter();
  end_by(reason, false);
}

AbortReason VirtualTime::ended() const {
  const Lock lock(mutex_);
  return reason_;
}

void VirtualTime::throw_ended(const Call& call) const {
  if (stuck_) throw Error(reason_.text, std::source_location::current(), reason_.kind);
  fail_ended(to_string(call), reason_);
}

std::string VirtualTime::where(const Rank& r) const {
  if (r.state == State::finished) return "has returned";
  std::string text;
  for (const auto& [op, box] : r.asked) {
    text += text.empty() ? "" : " or ";
    text += op ? to_string(op->call) : fmt::format("a message to channel {}", (box->tag - message_tags) / 2);
    if (r.state == State::waiting && op->call.kind != CallKind::recv && !r.queue.empty() && r.queue[0].first != op)
      text += " behind " + to_string(r.queue[0].first->call);
  }
  return "waits for " + text;
}

}  // namespace trireme
