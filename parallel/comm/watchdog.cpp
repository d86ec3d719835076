#include "parallel/comm/watchdog.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>

#include "kernels/core/thread.h"
#include "parallel/comm/call.h"
#include "parallel/comm/crash_report.h"
#include "parallel/comm/flight_recorder.h"

namespace trireme {

namespace {

using WatchdogClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// The last progress seen of one rank, and the running time of the process since then.
struct Standstill {
  std::uint64_t beats = 0;
  std::int64_t step = -1;
  const char* phase = nullptr;
  Seconds ran{0};
};

std::string verdict(const FlightRecorder& r, Seconds stood) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::string waiting;
  FlightRecorder::each([&](const FlightRecorder& other) {
    if (&other != &r && other.waits_since() > 0)
      waiting += fmt::format("{}{}", waiting.empty() ? "; waiting for others: rank " : ", ", other.rank());
  });
  return fmt::format(
      "watchdog: rank {} ({}, process {}) has stood still for {:.0f} s in phase {} after step {}; last: {}{}", r.rank(),
      host, ::getpid(), stood.count(), r.phase(), r.step(), r.entry(r.count()).text.data(), waiting);
}

void watch(const std::stop_token& end, Seconds timeout) {
  std::map<const FlightRecorder*, Standstill> seen;
  for (auto last = WatchdogClock::now(); !end.stop_requested();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto now = WatchdogClock::now();
    const Seconds ran = std::min<Seconds>(now - last, Seconds(0.2));
    last = now;
    const FlightRecorder* standing = nullptr;
    FlightRecorder::each([&](const FlightRecorder& r) {
      Standstill& s = seen[&r];
      if (s.beats != r.beats() || s.step != r.step() || s.phase != r.phase() || r.waits_since() > 0)
        s = {r.beats(), r.step(), r.phase()};
      s.ran += ran;
      const double share = std::strcmp(s.phase, "step") == 0 ? 0.9 : 6;
      if (s.ran >= share * timeout) standing = &r;
    });
    if (!standing) continue;
    const std::string text = verdict(*standing, seen[standing].ran);
    crash(standing->thread(), text);
  }
}

}  // namespace

Watchdog::Watchdog() : thread_(start_thread<std::jthread>("watchdog", watch, unscaled_timeout())) {}

}  // namespace trireme
