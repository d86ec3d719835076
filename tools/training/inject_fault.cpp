#include "tools/training/inject_fault.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>
#include <utility>

#include "kernels/core/error.h"

namespace trireme {

std::string_view inject_fault(const std::string& fault, const World& world, std::int64_t step, bool& injected) {
  if (fault.empty() || injected) return "";
  int rank = 0;
  long long at = 0;
  char kind[16] = {};
  constexpr std::pair<std::string_view, int> signals[] = {
      {"term", SIGTERM}, {"segv", SIGSEGV}, {"abort", SIGABRT}, {"stop", SIGSTOP}};
  const bool whole = std::sscanf(fault.c_str(), "%15[a-z]:%d:%lld", kind, &rank, &at) == 3;
  const std::string_view what = kind;
  const auto signal = std::ranges::find(signals, what, &std::pair<std::string_view, int>::first);
  constexpr std::array<std::string_view, 5> others{"throw", "exit", "hang", "nan", "flip"};
  const auto other = std::ranges::find(others, what);
  check(whole && (signal != std::end(signals) || other != others.end()), "run.fault",
        "'{}' is not KIND:RANK:STEP with throw, exit, hang, term, segv, abort, stop, nan or flip", fault);
  if (world.rank() != rank || step < at) return "";
  injected = true;
  if (what == "nan" || what == "flip") return *other;
  if (what == "exit") ::_exit(3);
  while (what == "hang") std::this_thread::sleep_for(std::chrono::milliseconds(1));
  check(signal != std::end(signals), "run.fault", "injected on rank {} before step {}", rank, at);
  ::pthread_kill(::pthread_self(), signal->second);
  return "";
}

}  // namespace trireme
