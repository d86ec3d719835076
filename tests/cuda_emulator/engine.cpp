#include "engine.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <utility>

#include "settings.h"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace emulator {
namespace {

thread_local Engine* running = nullptr;

std::string where(const Site& s) { return std::string(s.what) + " at " + s.file + ":" + std::to_string(s.line); }
bool same(const Site& a, const Site& b) {
  return a.line == b.line && (a.what == b.what || std::strcmp(a.what, b.what) == 0) &&
         (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

}  // namespace

// Drawn places are a walk by a step that has no divisor in common with n.
unsigned long long Engine::drawn(unsigned long long place, unsigned long long n) const {
  if (drawing_.kind == Order::forward) return place;
  if (drawing_.kind == Order::backward) return n - 1 - place;
  unsigned long long step = (drawing_.seed + draw_) * 2654435761u % n;
  while (std::gcd(step, n) != 1) ++step;
  return (place * step + draw_ * 40503u + drawing_.seed) % n;
}

Engine::Engine() { idle_.reserve(most_threads); }

void Engine::reset() {
  idle_.clear();
  for (Fiber* f : all_) {
    f->prepare(&entry);
    idle_.push_back(f);
  }
}

Fiber& Engine::idle() {
  if (idle_.empty()) {
    all_.push_back(new Fiber);  // kept as long as the process: engines are used again
    all_.back()->prepare(&entry);
    return *all_.back();
  }
  Fiber& f = *idle_.back();
  idle_.pop_back();
  return f;
}

void Engine::entry() {
  Fiber::entered();
  running->serve();
}

// Backward: the threads whose wait was over last go on first, so that a warp runs ahead of the others until it comes to
// a barrier of the block. Otherwise the warps take turns.
int Engine::take_ready() { return ready_[(drawing_.kind == Order::backward ? --last_ : first_++) % most_threads]; }

void Engine::serve() {
  for (;;) {
    while (first_ == last_ && started_ < threads_ && failure_.empty()) run_thread();
    Fiber& self = *current_;
    idle_.push_back(&self);
    if (first_ != last_ && failure_.empty()) {
      const int next = take_ready();
      go(next);
      current_ = lanes_[static_cast<std::size_t>(next)].fiber;
    } else {
      current_ = &host_;
    }
    if (current_ != &self) self.switch_to(*current_);
  }
}

void Engine::run_thread() {
  const int t = order_[static_cast<std::size_t>(started_++)];
  lanes_[static_cast<std::size_t>(t)].fiber = current_;
  go(t);
  try {
    (*work_)();
  } catch (const std::exception& e) { fail(std::string("a kernel threw: ") + e.what()); } catch (...) {
    fail("a kernel threw");
  }
  ++finished_;
}

void Engine::go(int t) {
  thread_ = t;
  const auto u = static_cast<unsigned>(t);
  if (blockDim.y * blockDim.z == 1)
    threadIdx = {u, 0, 0};
  else
    threadIdx = {u % blockDim.x, u / blockDim.x % blockDim.y, u / (blockDim.x * blockDim.y)};
}

void Engine::wait() {
  Fiber& self = *current_;
  if (!failure_.empty()) {
    current_ = &host_;
  } else if (first_ != last_) {
    const int next = take_ready();
    go(next);
    current_ = lanes_[static_cast<std::size_t>(next)].fiber;
  } else if (started_ < threads_) {
    current_ = &idle();
  } else {
    current_ = &host_;
  }
  if (current_ != &self) self.switch_to(*current_);
}

void Engine::fail(std::string text) {
  if (failure_.empty()) failure_ = std::move(text);
}

int Engine::meet_block(bool vote, const Site& s) {
  if (arrived_ == 0) barrier_ = s;
  if (!same(barrier_, s))
    fail("threads of a block meet at different barriers: " + where(barrier_) + " and " + where(s));
  ++arrived_;
  votes_ += vote ? 1 : 0;
  if (arrived_ == threads_) {
    result_ = votes_;
    arrived_ = votes_ = 0;
    for (int i = 0; i < threads_; ++i) release(order_[static_cast<std::size_t>(i)]);
  }
  wait();
  return result_;
}

std::uint64_t Engine::meet_warp(unsigned mask, std::uint64_t value, int source, const Site& s, bool ballot) {
  const int self = lane(), first = thread_ - self;
  if ((mask >> self & 1u) == 0) fail("the mask of " + where(s) + " leaves out the lane that calls it");
  Lane& own = lanes_[static_cast<std::size_t>(thread_)];
  own.value = value;
  own.source = source;
  Warp& warp = warps_[static_cast<std::size_t>(first / lanes)];
  int at = 0;
  while (at < warp.count && warp.meetings[static_cast<std::size_t>(at)].mask != mask) ++at;
  WarpRendezvous& meeting = warp.meetings[static_cast<std::size_t>(at)];
  if (at == warp.count) {
    meeting = {mask, 0, s};
    ++warp.count;
  }
  if (!same(meeting.site, s))
    fail("lanes of a warp meet at different places: " + where(meeting.site) + " and " + where(s));
  meeting.arrived |= 1u << self;
  if (meeting.arrived == mask) settle(warp, at, first, ballot);
  wait();
  return own.result;
}

void Engine::settle(Warp& warp, int at, int first, bool ballot) {
  const unsigned mask = warp.meetings[static_cast<std::size_t>(at)].mask;
  warp.meetings[static_cast<std::size_t>(at)] = warp.meetings[static_cast<std::size_t>(--warp.count)];
  auto lane_at = [&](int i) -> Lane& { return lanes_[static_cast<std::size_t>(first + i)]; };
  std::uint64_t votes = 0;
  if (ballot)
    for (int i = 0; i < lanes; ++i)
      if (mask >> i & 1u) votes |= lane_at(i).value << i;
  for (int i = 0; i < lanes; ++i) {
    if ((mask >> i & 1u) == 0) continue;
    const int from = lane_at(i).source;
    // What lanes outside the mask hold is undefined: NaN, so that it shows.
    lane_at(i).result = ballot ? votes : from >= 0 && from < lanes && (mask >> from & 1u) ? lane_at(from).value : ~0ull;
  }
  for (int place = 0; place < lanes; ++place) {
    const int i = static_cast<int>(drawn(static_cast<unsigned>(place), lanes));
    if (mask >> i & 1u) release(first + i);
  }
}

void Engine::start_block(unsigned long long place) {
  const auto x = static_cast<unsigned long long>(gridDim.x), y = static_cast<unsigned long long>(gridDim.y);
  blockIdx = {static_cast<unsigned>(place % x), static_cast<unsigned>(place / x % y),
              static_cast<unsigned>(place / (x * y))};
  started_ = finished_ = arrived_ = votes_ = 0;
  first_ = last_ = 0;
  for (int w = 0; w * lanes < threads_; ++w) warps_[static_cast<std::size_t>(w)].count = 0;
  ++draw_;
  for (int i = 0; i < threads_; ++i)
    order_[static_cast<std::size_t>(i)] =
        static_cast<short>(drawn(static_cast<unsigned>(i), static_cast<unsigned>(threads_)));
}

std::string Engine::stuck() const {
  std::string text;
  auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (arrived_ > 0)
    add("threads of a block do not all reach " + where(barrier_) + ": " + std::to_string(arrived_) + " of " +
        std::to_string(threads_) + " wait there, " + std::to_string(finished_) + " have finished");
  for (int w = 0; w * lanes < threads_; ++w)
    for (int m = 0; m < warps_[static_cast<std::size_t>(w)].count && text.size() < 500; ++m) {
      const WarpRendezvous& meeting = warps_[static_cast<std::size_t>(w)].meetings[static_cast<std::size_t>(m)];
      char masks[64];
      std::snprintf(masks, sizeof masks, "%08x of %08x", meeting.arrived, meeting.mask);
      add("lanes of warp " + std::to_string(w) + " do not all reach " + where(meeting.site) + ": " + masks +
          " wait there");
    }
  return text;
}

std::string Engine::run(dim3 blocks, dim3 threads, const std::function<void()>& thread) {
  Engine* const before = std::exchange(running, this);
  work_ = &thread;
  gridDim = blocks;
  blockDim = threads;
  threads_ = static_cast<int>(threads.x * threads.y * threads.z);
  failure_.clear();
  const unsigned long long count = 1ull * blocks.x * blocks.y * blocks.z;
  drawing_ = settings().order;
  for (unsigned long long b = 0; b < count && failure_.empty(); ++b) {
    draw_ = 0;  // one walk over all blocks
    const unsigned long long place = drawn(b, count);
    draw_ = static_cast<unsigned>(b);
    start_block(place);
    current_ = &idle();
    host_.switch_to(*current_);
    if (failure_.empty() && finished_ != threads_) fail(stuck());
    if (!failure_.empty())
      failure_ += " (block " + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
                  std::to_string(blockIdx.z) + ")";
  }
  if (!failure_.empty()) reset();  // some fibers still wait
  work_ = nullptr;
  running = before;
  return failure_;
}

int meet_block(bool vote, Site s) { return running->meet_block(vote, s); }
std::uint64_t meet_warp(unsigned mask, std::uint64_t value, int source, Site s) {
  return running->meet_warp(mask, value, source, s, false);
}
unsigned vote_warp(unsigned mask, bool vote, Site s) {
  return static_cast<unsigned>(running->meet_warp(mask, vote, 0, s, true));
}
int lane() { return running->lane(); }

void die(const char* text, std::size_t number) {
  // Device memory may be beyond reach of what prints otherwise.
  std::string line = std::string("emulator: ") + text;
  if (number != 0) line += " " + std::to_string(number);
  line += "\n";
  (void)!write(2, line.data(), line.size());
  std::abort();
}

}  // namespace emulator
