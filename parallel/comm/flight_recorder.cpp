#include "parallel/comm/flight_recorder.h"

#include <fmt/format.h>

#include <ctime>
#include <mutex>

namespace trireme {

namespace {

thread_local FlightRecorder* mine = nullptr;
thread_local const std::string* waits_for = nullptr;
std::mutex looking;
std::string elsewhere;                                      // actions of ranks in other processes
std::array<std::atomic<FlightRecorder*>, 1024> registered;  // further ranks of a process are not reported

std::int64_t monotonic_us() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000 + t.tv_nsec / 1000;
}

}  // namespace

FlightRecorder::Wait::Wait() {
  outermost_ = mine && mine->waits_since_ == 0;
  if (!outermost_) return;
  mine->waits_since_ = std::max<std::int64_t>(mine->now(), 1);
  if (mine->events_)
    mine->events_->push_back(
        {Event::wait, waits_for ? *waits_for : mine->entry(mine->count_).text.data(), nanoseconds()});
}
FlightRecorder::Wait::~Wait() {
  if (!outermost_) return;
  mine->waited_ += mine->now() - mine->waits_since_;
  mine->waits_since_ = 0;
  if (mine->events_)
    for (auto e = mine->events_->rbegin(); e != mine->events_->rend(); ++e)
      if (e->kind == Event::wait && e->end == 0) {
        e->end = nanoseconds();
        break;
      }
}

FlightRecorder::WaitFor::WaitFor(const std::string& what) { waits_for = &what; }
FlightRecorder::WaitFor::~WaitFor() { waits_for = nullptr; }

std::int64_t FlightRecorder::nanoseconds() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

FlightRecorder::FlightRecorder(int rank, int ranks) : rank_(rank), ranks_(ranks), start_(monotonic_us()) {
  mine = this;
  for (auto& place : registered) {
    FlightRecorder* free = nullptr;
    if (place.compare_exchange_strong(free, this)) return;
  }
}

FlightRecorder::~FlightRecorder() {
  mine = nullptr;
  const std::lock_guard lock(looking);
  for (auto& place : registered) {
    FlightRecorder* own = this;
    if (place.compare_exchange_strong(own, nullptr)) return;
  }
}

FlightRecorder* FlightRecorder::current() { return mine; }
void FlightRecorder::each(const std::function<void(const FlightRecorder&)>& look) {
  const std::lock_guard lock(looking);
  for (const auto& place : registered)
    if (const FlightRecorder* r = place) look(*r);
}
std::string FlightRecorder::others() {
  std::string text;
  int told = 0;
  each([&](const FlightRecorder& r) {
    if (&r == mine || ++told > 8) return;
    const Entry& last = r.entry(r.count());
    text += fmt::format("{}rank {}: {} {}, for {:.1f} s, phase {}", text.empty() ? "" : "; ", r.rank(),
                        last.ended == 0 ? "in" : "after", last.text.data(),
                        static_cast<double>(r.now() - last.begun) / 1e6, r.phase());
  });
  const std::lock_guard lock(looking);
  return text.empty() ? elsewhere : text;
}
void FlightRecorder::set_others(std::string text) {
  const std::lock_guard lock(looking);
  elsewhere = std::move(text);
}
std::span<const std::atomic<FlightRecorder*>> FlightRecorder::all() { return registered; }
std::int64_t FlightRecorder::now() const { return monotonic_us() - start_; }

std::int64_t FlightRecorder::begin(std::string_view text) {
  const std::int64_t number = count_ + 1;
  Entry& e = entries_[static_cast<std::size_t>(number % kept)];
  e.number = number;
  e.begun = now();
  e.ended = 0;
  const std::size_t size = std::min(text.size(), e.text.size() - 1);
  for (std::size_t i = 0; i < size; ++i)
    e.text[i] = text[i] == '"' || text[i] == '\\' || static_cast<unsigned char>(text[i]) < ' ' ? ' ' : text[i];
  e.text[size] = 0;
  count_ = number;
  if (events_) events_->push_back({Event::call, std::string(text), nanoseconds()});
  return number;
}

void FlightRecorder::end(std::int64_t number) {
  Entry& e = entries_[static_cast<std::size_t>(number % kept)];
  if (e.number == number) e.ended = std::max<std::int64_t>(now(), 1);
  if (!events_) return;
  for (auto each = events_->rbegin(); each != events_->rend(); ++each)  // events nest
    if (each->kind == Event::call && each->end == 0) {
      each->end = nanoseconds();
      break;
    }
}

void FlightRecorder::set_phase(const char* name, std::int64_t step) {
  phase_ = name;
  step_ = step;
}

}  // namespace trireme
